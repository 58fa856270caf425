"use strict";
const search = document.getElementById("search");
const index = document.getElementById("index");
const phone = window.matchMedia("(max-width: 56rem)");
const collapse = () => { index.open = !phone.matches; };
phone.addEventListener("change", collapse);
collapse();
index.addEventListener("click", (event) => { if (event.target.closest("a")) collapse(); });
const entries = [...document.querySelectorAll("#contents li")];
search.addEventListener("input", () => {
  const words = search.value.toLowerCase().split(/\s+/);
  for (const entry of entries) {
    const name = entry.textContent.toLowerCase();
    entry.hidden = !words.every((word) => name.includes(word));
  }
  for (const group of document.querySelectorAll("#contents details")) {
    group.hidden = search.value !== "" && !group.querySelector("li:not([hidden])");
  }
});
search.addEventListener("keydown", (event) => {
  const first = entries.find((entry) => !entry.hidden);
  if (event.key === "Enter" && first) first.querySelector("a").click();
  if (event.key === "Escape") { search.value = ""; search.dispatchEvent(new Event("input")); search.blur(); }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== search) { event.preventDefault(); index.open = true; search.focus(); }
});
