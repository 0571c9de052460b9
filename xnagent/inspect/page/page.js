"use strict";
(() => {
  const PAGE = 100;
  const ENVELOPE = new Set(["type", "session", "seq", "at"]);
  const IN_LEDGER = new Set(["agent", "request", "usage", "cost_usd", "finish", "duration_seconds", "first_token_seconds", "cursor"]);
  const UNSAFE = new RegExp(
    "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ufeff\\u{e0000}-\\u{e007f}" +
      "\\ud800-\\udfff]", "gu");
  const at = (id) => document.getElementById(id);

  // What a terminal or a browser would obey is shown as an escape, as xnagent's tables do it.
  const visible = (text) => text.replace(UNSAFE, (found) => {
    const code = found.codePointAt(0);
    return code === 13 ? "\\r" : code < 256 ? "\\x" + code.toString(16).padStart(2, "0") : "\\u" + code.toString(16).padStart(4, "0");
  });

  const make = (name, kind, ...content) => {
    const node = document.createElement(name);
    if (kind) node.className = kind;
    for (const part of content) node.append(part instanceof Node ? part : visible(String(part)));
    return node;
  };

  const lines = (id) => {
    let split = null;
    return () => (split ??= at(id).textContent.split("\n").filter(Boolean));
  };
  const events = lines("events");
  let numbered = null;
  const numberOf = (line) => JSON.parse(line).request;
  const ledger = () => (numbered ??= new Map(at("ledger").textContent.split("\n").filter(Boolean).map((line) => [numberOf(line), line])));
  const record = (seq) => JSON.parse(events()[seq - 1]);

  const block = (text) => {
    const pre = make("pre", "", text);
    pre.tabIndex = 0;
    return pre;
  };
  const pretty = (text) => {
    try {
      return JSON.stringify(JSON.parse(text), null, 2);
    } catch {
      return text;
    }
  };
  const pair = (name, value) => make("div", "", make("dt", "", name), make("dd", "", value));
  const isLong = (value) => typeof value === "string" && (value.length > 120 || value.includes("\n"));

  const item = (one) => {
    const told = { user_text: one.origin, tool_call: one.name, tool_result: one.is_error ? "error" : "" }[one.kind] || "";
    const text = one.kind === "tool_call" ? pretty(one.arguments) : one.kind === "reasoning" ? one.payload : one.text;
    return [make("p", "", make("b", "", one.kind.replace("_", " ")), " " + told), block(text)];
  };

  const content = (told, known) => {
    const short = make("dl");
    const parts = [];
    for (const [name, value] of Object.entries(told)) {
      if (ENVELOPE.has(name) || known.has(name) || value === null || value === "") continue;
      if (Array.isArray(value) && value.length && value[0] && value[0].kind) value.forEach((one) => parts.push(...item(one)));
      else if (isLong(value)) parts.push(make("p", "quiet", name), block(pretty(value)));
      else if (typeof value !== "object") short.append(pair(name.replaceAll("_", " "), value));
      else if (Object.keys(value).length) {
        const text = JSON.stringify(value, null, 1);
        if (text.length > 120) parts.push(make("p", "quiet", name), block(text));
        else short.append(pair(name.replaceAll("_", " "), JSON.stringify(value)));
      }
    }
    return [short, ...parts];
  };

  const link = (href, text) => {
    const node = make("a", "", text);
    node.href = href;
    return node;
  };
  const shown = (seq, known = new Set()) => {
    const told = record(seq);
    const head = make("p", "", make("b", "", told.type.replaceAll("_", " ")), make("span", "quiet", ` event ${seq}, ${told.at}`));
    return make("div", "record", head, ...content(told, known));
  };

  const places = (node, name) => (node.dataset[name] || "").split(" ").filter(Boolean).map(Number);
  const fillRequest = (node) => {
    const number = Number(node.id.slice("request-".length));
    const row = JSON.parse(ledger().get(number));
    const told = make("dl", "ledger-row");
    for (const [name, value] of Object.entries(row)) {
      if (value !== null && value !== "") told.append(pair(name.replaceAll("_", " "), typeof value === "object" ? JSON.stringify(value) : value));
    }
    node.append(told);
    for (const [name, title] of [["new", "New in it"], ["replies", "Reply"], ["results", "What its calls came to"]]) {
      const found = places(node, name);
      if (found.length) node.append(make("h4", "", title), ...found.map((seq) => shown(seq, IN_LEDGER)));
    }
  };

  const eventRow = (seq, told, snippet) => {
    const summary = make("summary", "", make("span", "n quiet", String(seq)), make("b", "", told.type), make("span", "quiet", told.at), snippet);
    const node = make("details", "hit-row", summary);
    node.fill = () => {
      if (told.request) node.append(link(`#request-${told.request}`, `request ${told.request}`), " ");
      if (told.run) node.append(link(`#run-${told.run}`, `run ${told.run}`));
      node.append(shown(seq));
    };
    return node;
  };

  document.addEventListener("toggle", (event) => {
    const node = event.target;
    if (!(node instanceof HTMLDetailsElement) || !node.open || node.isFilled) return;
    node.isFilled = true;
    if (node.fill) node.fill();
    else if (node.id.startsWith("request-")) fillRequest(node);
  }, true);

  const pager = (rows, more, seqs, row) => {
    let next = 0;
    const step = () => {
      rows.append(...seqs.slice(next, next + PAGE).map(row));
      next += PAGE;
      more.hidden = next >= seqs.length;
    };
    more.onclick = step;
    rows.replaceChildren();
    step();
    return (added) => {
      seqs.push(...added);
      if (rows.childElementCount < PAGE) {
        rows.append(...seqs.slice(next = rows.childElementCount, PAGE).map(row));
        next = PAGE;
      }
      more.hidden = next >= seqs.length;
    };
  };

  const gist = (told) => {
    const rest = Object.entries(told).filter(([name, value]) => !ENVELOPE.has(name) && value !== null && value !== "");
    const text = rest.map(([name, value]) => `${name}=${typeof value === "object" ? JSON.stringify(value) : value}`).join(" ");
    return make("span", "quiet", text.slice(0, 140));
  };
  const chosen = (from) => {
    const begin = `{"type":${JSON.stringify(at("log-type").value)}`;
    const all = at("log-type").value === "";
    return events().slice(from).flatMap((one, n) => (all || one.startsWith(begin) ? [from + n + 1] : []));
  };
  let lengthen = null;
  const showLog = () => {
    lengthen = pager(at("log-rows"), at("log-more"), chosen(0), (seq) => {
      const told = record(seq);
      return eventRow(seq, told, gist(told));
    });
  };

  // The log is searched as it is written: the words take the same escapes.
  const written = (text) =>
    JSON.stringify(text).slice(1, -1).replaceAll("<", "\\u003c")
      .replace(/[\u007f-\uffff]/g, (one) => "\\u" + one.charCodeAt(0).toString(16).padStart(4, "0")).toLowerCase();
  let lowered = null;
  const snippet = (line, place, size) => {
    const from = Math.max(0, place - 50);
    const hit = make("mark", "", line.slice(place, place + size));
    return make("code", "", line.slice(from, place), hit, line.slice(place + size, place + size + 90));
  };
  const search = (text) => {
    const found = at("found");
    found.hidden = text.trim() === "";
    if (found.hidden) return;
    lowered ??= events().map((line) => line.toLowerCase());
    const wanted = written(text.trim());
    const hits = lowered.flatMap((line, n) => (line.includes(wanted) ? [n + 1] : []));
    found.querySelector("h2").textContent = `Found in ${hits.length.toLocaleString("en")} events`;
    const rows = make("div");
    const more = make("button", "", "more");
    more.type = "button";
    at("found-rows").replaceChildren(rows, more);
    pager(rows, more, hits, (seq) => eventRow(seq, record(seq), snippet(events()[seq - 1], lowered[seq - 1].indexOf(wanted), wanted.length)));
  };
  let waiting = 0;
  at("search").addEventListener("input", (event) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      search(event.target.value);
      if (!at("found").hidden) at("found").scrollIntoView({ block: "start" });
    }, 150);
  });

  const root = document.documentElement;
  const isDark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const keep = (value) => {
    try {
      if (value === undefined) return localStorage.getItem("xnagent-theme");
      localStorage.setItem("xnagent-theme", value);
    } catch { /* a page from a file may have no storage */ }
    return null;
  };
  const switchTheme = () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    keep(root.dataset.theme);
  };
  if (["light", "dark"].includes(keep())) root.dataset.theme = keep();
  at("theme").addEventListener("click", switchTheme);

  const goTo = () => {
    const target = location.hash.length > 1 && at(decodeURIComponent(location.hash.slice(1)));
    if (target instanceof HTMLDetailsElement) {
      target.open = true;
      target.scrollIntoView({ block: "start" });
      target.querySelector("summary").focus({ preventScroll: true });
    }
  };
  addEventListener("hashchange", goTo);

  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest("input, select, textarea");
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && event.target === at("search")) {
      at("search").value = "";
      search("");
      at("search").blur();
    } else if (event.key === "Enter" && event.target === at("search")) {
      event.preventDefault();
      at("found-rows").querySelector("summary")?.focus();
    } else if (!isTyping && event.key === "/") {
      event.preventDefault();
      at("search").focus();
    } else if (!isTyping && event.key === "t") switchTheme();
  });

  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("#changes details, #runs details, #facts details")].filter((node) => !node.open);
    folded.forEach((node) => { node.open = true; });
  });
  addEventListener("afterprint", () => folded.forEach((node) => { node.open = false; }));

  // A served page brings what happened since: lines of the log, rows of the ledger, requests that changed.
  const count = (kind, number) => {
    const options = at("log-type").options;
    let option = [...options].find((one) => one.value === kind);
    if (!option) at("log-type").add((option = Object.assign(document.createElement("option"), { value: kind, number: 0 })));
    option.number ??= Number(option.text.replace(/.*\(|[,)]/g, ""));
    option.number += number;
    option.text = `${kind || "all"} (${option.number.toLocaleString("en")})`;
  };
  document.addEventListener("xnagent:news", ({ detail }) => {
    const from = events().length;
    events().push(...detail.lines);
    if (lowered) lowered.push(...detail.lines.map((line) => line.toLowerCase()));
    detail.rows.forEach((line) => ledger().set(numberOf(line), line));
    detail.lines.forEach((line) => count(JSON.parse(line).type, 1));
    count("", detail.lines.length);
    if (lengthen) lengthen(chosen(from));
    for (const node of detail.changed.filter((one) => one.isFilled)) {
      node.querySelector("summary").nextSibling && node.replaceChildren(node.querySelector("summary"));
      node.isFilled = node.open;
      if (node.open) fillRequest(node);
    }
  });

  at("log-type").addEventListener("change", showLog);
  (window.requestIdleCallback || setTimeout)(showLog);
  goTo();
})();
