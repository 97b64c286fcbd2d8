const shown = text => text.replace(/ /g, "·").replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/^\p{M}/u, "◌$&")
  .replace(/[\p{Cc}\p{Cf}]/gu, c => "⟨U+" + c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0") + "⟩");
// Right-to-left text is isolated, so that it leaves the sentence around it alone.
const visible = text => /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/.test(text) ? "\u2068" + shown(text) + "\u2069" : shown(text);
const percent = p => (p >= 0.01 ? (100 * p).toFixed(0) : p >= 1e-6 ? Number((100 * p).toPrecision(1)) : "< 0.0001")
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
    if (event.altKey || event.ctrlKey || event.metaKey || document.activeElement.matches("select, input, a")) return;
    if (!["ArrowLeft", "ArrowRight"].includes(event.key)) return;
    at(!picked ? text.firstElementChild
      : event.key === "ArrowLeft" ? picked.previousElementSibling : picked.nextElementSibling);
    picked?.scrollIntoView({block: "nearest"});
  });
  return at;
}
