const visible = text => text.replace(/ /g, "·").replace(/\n/g, "⏎").replace(/\t/g, "⇥")
  .replace(/[\p{Cc}\p{Cf}]/gu, character => "⟨U+" + hexadecimal(character.codePointAt(0)) + "⟩");
const hexadecimal = number => number.toString(16).toUpperCase().padStart(4, "0");
const percent = p => (p >= 0.01 ? (100 * p).toFixed(0) : p >= 1e-6 ? Number((100 * p).toPrecision(1)) : "under 0.0001")
  + " %";

// Calls show(span) for the span of the text that is hovered over, tapped, or reached by the arrow keys.
function pick(text, show) {
  let picked = null;
  const at = span => {
    if (!span || span === picked) return;
    picked?.classList.remove("picked");
    picked = span;
    picked.classList.add("picked");
    show(picked);
  };
  const under = event => at(event.target.closest("#" + text.id + " > span"));
  text.addEventListener("pointerover", under);
  text.addEventListener("click", under);
  document.addEventListener("keydown", event => {
    if (!["ArrowLeft", "ArrowRight"].includes(event.key) || document.activeElement.matches("select, input, a")) return;
    at(!picked ? text.firstElementChild
      : event.key === "ArrowLeft" ? picked.previousElementSibling : picked.nextElementSibling);
    picked?.scrollIntoView({block: "nearest"});
  });
  return at;
}
