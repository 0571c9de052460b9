"use strict";
(() => {
  const AGAIN_SECONDS = 5;
  const UNSEEN_SECONDS = 10;
  const at = (id) => document.getElementById(id);
  const list = at("sessions");
  let place = at("main").dataset.place;
  let source = null;

  const parsed = (html) => {
    const template = document.createElement("template");
    template.innerHTML = html;
    return template.content.firstElementChild;
  };
  const filter = () => {
    const wanted = at("search").value.trim().toLowerCase();
    for (const one of list.children) one.hidden = wanted !== "" && !one.textContent.toLowerCase().includes(wanted);
  };
  const set = (name, html) => {
    const old = at(name);
    const fresh = parsed(html);
    if (!old) return list.append(fresh);
    const hadFocus = old.contains(document.activeElement);
    old.replaceWith(fresh);
    if (hadFocus) fresh.querySelector("a").focus({ preventScroll: true });
    return fresh;
  };
  const arrange = (order) => {
    const wanted = new Set(order);
    [...list.children].filter((one) => !wanted.has(one.id)).forEach((one) => one.remove());
    order.forEach((name, n) => {
      const node = at(name);
      if (node && list.children[n] !== node) list.insertBefore(node, list.children[n] || null);
    });
    at("none").hidden = order.length > 0;
  };
  const change = (event) => {
    const told = JSON.parse(event.data);
    Object.entries(told.lines).forEach(([name, html]) => set(name, html));
    if (told.order) arrange(told.order);
    at("totals").replaceWith(parsed(told.totals));
    place = event.lastEventId;
    say("");
    filter();
  };
  const say = (text) => { at("pulse-note").textContent = text; };

  const close = () => {
    if (source) source.close();
    source = null;
  };
  const open = () => {
    close();
    source = new EventSource(`/events?after=${encodeURIComponent(place)}`);
    source.addEventListener("open", () => say(""));
    source.addEventListener("lines", change);
    source.addEventListener("problem", (event) => say(JSON.parse(event.data).text));
    source.addEventListener("error", () => {
      say("not connected; trying again. If the server was started anew, open the address that it prints.");
      if (source && source.readyState === EventSource.CLOSED) setTimeout(open, AGAIN_SECONDS * 1000);
    });
  };
  let unseen = 0;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(unseen);
    if (document.hidden) unseen = setTimeout(close, UNSEEN_SECONDS * 1000);
    else if (!source) open();
  });
  addEventListener("pagehide", close);

  const root = document.documentElement;
  const isDark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const keep = (value) => {
    try {
      if (value === undefined) return localStorage.getItem("xnagent-theme");
      localStorage.setItem("xnagent-theme", value);
    } catch { /* storage may be off */ }
    return null;
  };
  const switchTheme = () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    keep(root.dataset.theme);
  };
  if (["light", "dark"].includes(keep())) root.dataset.theme = keep();
  at("theme").addEventListener("click", switchTheme);
  at("search").addEventListener("input", filter);
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest("input, textarea");
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && event.target === at("search")) {
      at("search").value = "";
      filter();
      at("search").blur();
    } else if (event.key === "Enter" && event.target === at("search")) {
      const first = [...list.children].find((one) => !one.hidden);
      if (first) first.querySelector("a").focus();
    } else if (!isTyping && event.key === "/") {
      event.preventDefault();
      at("search").focus();
    } else if (!isTyping && event.key === "t") switchTheme();
  });
  open();
})();
