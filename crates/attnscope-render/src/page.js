"use strict";
{
  const said = document.getElementById("copied");
  let timer;
  const say = (text) => {
    said.textContent = text;
    said.classList.add("on");
    clearTimeout(timer);
    timer = setTimeout(() => said.classList.remove("on"), 1600);
  };
  const copy = (box) => {
    const path = box.dataset.path;
    // A page opened from disk may have no clipboard; the path is then at least shown.
    if (navigator.clipboard) navigator.clipboard.writeText(path).then(() => say("copied " + path), () => say(path));
    else say(path);
  };
  for (const box of document.querySelectorAll("svg .box")) {
    box.setAttribute("tabindex", "0");
    box.addEventListener("click", () => copy(box));
    box.addEventListener("keydown", (event) => { if (event.key === "Enter") copy(box); });
  }
}
