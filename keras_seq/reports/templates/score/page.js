const tooltip = document.getElementById("tooltip");
const at = pick(document.getElementById("text"), span => {
  const loss = parseFloat(span.dataset.loss), token = "“" + visible(span.textContent) + "”";
  tooltip.textContent = isNaN(loss)
    ? token + " is the first token; it is not predicted."
    : token + ": " + loss.toFixed(3) + " nats, probability " + percent(Math.exp(-loss));
});
addEventListener("hashchange", () => {
  at(document.querySelector(":target"));
  document.activeElement.blur();  // a link, which keeps the arrow keys
});
