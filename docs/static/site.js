// What is wider than its place can be scrolled by the keyboard too.
function reached() {
  for (const one of document.querySelectorAll("pre, .table-wrapper, .math, .output"))
    if (one.scrollWidth > one.clientWidth) one.tabIndex = 0; else one.removeAttribute("tabindex");
}
addEventListener("load", reached); addEventListener("resize", reached);
