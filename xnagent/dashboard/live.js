"use strict";
(() => {
  const CHUNK = 100;
  const UNSEEN_SECONDS = 10;
  const AGAIN_SECONDS = 5;
  const at = (id) => document.getElementById(id);
  const live = at("live");
  if (!live) return;
  const path = location.pathname.replace(/\/$/, "");
  let place = live.dataset.place;
  let standing = { status: live.dataset.status, is_live: live.dataset.live === "true" };
  let source = null;
  let newest = null;

  // The server has escaped everything; a template runs nothing, and the policy lets nothing else run.
  const parsed = (html) => {
    const template = document.createElement("template");
    template.innerHTML = html;
    return template.content.firstElementChild;
  };

  // What is looked at stays where it is, whatever grows above it.
  const inPlace = (work) => {
    const seen = [...at("main").children].find((one) => one.getBoundingClientRect().bottom > 70);
    const before = seen && seen.getBoundingClientRect().top;
    work();
    const now = seen && (seen.isConnected ? seen : at(seen.id));
    if (now && scrollY > 0) scrollBy({ top: now.getBoundingClientRect().top - before, behavior: "instant" });
  };

  const nameOf = (details) => {
    const own = details.id || (details.querySelector("summary > b") || details.querySelector("summary")).textContent;
    const around = details.parentElement.closest("details");
    return around ? `${nameOf(around)} / ${own}` : own;
  };
  const folds = (part) => {
    const found = new Map();
    for (const one of part.querySelectorAll("details")) {
      let name = nameOf(one);
      while (found.has(name)) name += "'";
      found.set(name, one);
    }
    return found;
  };
  const scrolled = (part) => [...part.querySelectorAll(".scroll, pre")];

  const keepFocus = (old, fresh, pairs) => {
    const active = document.activeElement;
    if (!active || !old.contains(active)) return;
    const around = active.closest("details");
    const twin = around && pairs.get(around);
    const link = active.getAttribute("href");
    const same = link ? fresh.querySelector(`[href="${CSS.escape(link)}"]`) : scrolled(fresh)[scrolled(old).indexOf(active)];
    const next = same || (twin && twin.querySelector("summary"));
    if (next) next.focus({ preventScroll: true });
  };
  const swap = (old, fresh) => {
    const known = folds(old);
    const pairs = new Map();
    for (const [name, one] of folds(fresh)) {
      if (!known.has(name)) continue;
      one.open = known.get(name).open;
      pairs.set(known.get(name), one);
    }
    const places = scrolled(old).map((one) => [one.scrollLeft, one.scrollTop]);
    const active = document.activeElement;
    const marker = old.contains(active) ? active : null;
    old.after(fresh);
    scrolled(fresh).forEach((one, n) => { if (places[n]) [one.scrollLeft, one.scrollTop] = places[n]; });
    if (marker) keepFocus(old, fresh, pairs);
    old.remove();
  };

  // A part in which text is being selected waits until that is over.
  const waiting = new Map();
  const isSelected = (part) => {
    const selection = document.getSelection();
    return selection && !selection.isCollapsed && selection.containsNode(part, true);
  };
  const patch = (name, html) => {
    const old = at(name);
    if (!old) return;
    if (isSelected(old)) waiting.set(name, html);
    else {
      waiting.delete(name);
      swap(old, parsed(html));
    }
  };
  document.addEventListener("selectionchange", () => {
    if (waiting.size && document.getSelection().isCollapsed) inPlace(() => [...waiting].forEach(([name, html]) => patch(name, html)));
  });

  const added = (node) => {
    const ledger = document.querySelector("#requests .ledger");
    let last = ledger.lastElementChild;
    if (last.classList.contains("chunk") && last.childElementCount >= CHUNK) {
      last = document.createElement("div");
      last.className = "chunk";
      ledger.append(last);
    }
    last.append(node);
    return node;
  };
  const setRequest = ({ request, html }) => {
    const fresh = parsed(html);
    const old = at(`request-${request}`);
    if (!old) return added(fresh);
    for (const name of ["class", "data-new", "data-replies", "data-results"]) old.setAttribute(name, fresh.getAttribute(name));
    old.querySelector("summary").replaceChildren(...fresh.querySelector("summary").childNodes);
    return old;
  };

  const news = (event) => {
    const [first, ...lines] = event.data.split("\n");
    const requests = JSON.parse(first);
    inPlace(() => {
      const changed = requests.map(setRequest);
      document.dispatchEvent(new CustomEvent("xnagent:news", { detail: { lines, changed, rows: requests.map((one) => one.row) } }));
    });
    newest = Date.now();
    place = event.lastEventId;
    tellPulse();
  };
  const parts = (event) => {
    inPlace(() => Object.entries(JSON.parse(event.data)).forEach(([name, html]) => patch(name, html)));
    place = event.lastEventId;
  };

  const say = (mark, text, kind) => {
    at("pulse").textContent = mark;
    at("pulse").className = `badge ${kind}`;
    at("pulse-note").textContent = ` ${text}`;
  };
  const tellPulse = () => {
    const seq = Number(place.split("-")[0]).toLocaleString("en");
    const ago = newest === null ? "" : `, ${Math.round((Date.now() - newest) / 1000)} s ago`;
    if (standing.is_live) say("● live", `event ${seq}${ago}`, "s-running");
    else say("○ not running", `event ${seq}; the page changes if it goes on`, "");
  };
  const stand = () => {
    const { is_live: isLive, status } = standing;
    const isOver = !isLive;
    at("resume").hidden = !isOver;
    if (at("tell")) {
      at("cancel").hidden = isOver;
      at("label").textContent = status === "blocked" ? "Answer the question" : "Tell the Planner";
      at("hint").textContent = isOver ? "kept until the session goes on" : "it reads it before its next step";
    }
    tellPulse();
  };

  const close = () => {
    if (source) source.close();
    source = null;
  };
  const open = () => {
    close();
    source = new EventSource(`${path}/events?after=${encodeURIComponent(place)}`);
    source.addEventListener("open", stand);
    source.addEventListener("news", news);
    source.addEventListener("parts", parts);
    source.addEventListener("standing", (event) => {
      standing = JSON.parse(event.data);
      stand();
    });
    source.addEventListener("problem", (event) => {
      close();
      say("✗ no more", JSON.parse(event.data).text, "s-failed");
      setTimeout(open, 2 * AGAIN_SECONDS * 1000);
    });
    source.addEventListener("error", () => {
      say("○ not connected", "trying again; if the server was started anew, open the address that it prints", "s-interrupted");
      if (source && source.readyState === EventSource.CLOSED) setTimeout(open, AGAIN_SECONDS * 1000);
    });
  };

  // A browser opens six connections to a server: windows that nobody sees give theirs back.
  let unseen = 0;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(unseen);
    if (document.hidden) unseen = setTimeout(close, UNSEEN_SECONDS * 1000);
    else if (!source) open();
  });
  addEventListener("pagehide", close);

  const post = async (action, content) => {
    const headers = { "content-type": "application/json" };
    const answer = await fetch(`${path}/${action}`, { method: "POST", headers, body: JSON.stringify(content) });
    const told = await answer.json().catch(() => ({ error: `the server answered ${answer.status}` }));
    if (told.error) throw new Error(told.error);
    return told;
  };
  const answered = (text, isBad) => {
    at("answer").hidden = false;
    at("answer").textContent = text;
    at("answer").className = isBad ? "said error" : "said";
  };
  const during = async (button, work) => {
    button.disabled = true;
    try {
      answered(await work(), false);
    } catch (error) {
      answered(error.message, true);
    } finally {
      button.disabled = false;
    }
  };
  const OUTCOMES = {
    stopped: (told) => `stopped (${told.outcome || "its process was killed"})`,
    stopping: () => "stopping; it has not ended yet",
    not_running: () => "it does not run",
    not_taken: () => "its process does not answer; end it with kill",
  };
  if (at("tell")) {
    at("tell").addEventListener("submit", (event) => {
      event.preventDefault();
      during(event.submitter || at("tell").querySelector("button"), async () => {
        const told = await post("tell", { text: at("text").value });
        at("text").value = "";
        if (told.status === "delivered") return `delivered as ${told.message}; the Planner reads it before its next step`;
        return told.is_running ? "kept; its process has not taken it yet" : "kept; it is read when the session goes on, by the command below";
      });
    });
    at("text").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) at("tell").requestSubmit();
    });
    let sure = 0;
    const calm = () => {
      sure = 0;
      at("cancel").textContent = "Cancel the session";
    };
    at("cancel").addEventListener("click", () => {
      if (!sure) {
        at("cancel").textContent = "Really cancel?";
        sure = setTimeout(calm, 4000);
        return;
      }
      clearTimeout(sure);
      calm();
      answered("stopping…", false);
      during(at("cancel"), async () => {
        const told = await post("cancel", {});
        return OUTCOMES[told.status](told);
      });
    });
  }
  at("copy").addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(at("command").textContent);
      at("copy").textContent = "copied";
    } catch {
      const range = document.createRange();
      range.selectNodeContents(at("command"));
      document.getSelection().removeAllRanges();
      document.getSelection().addRange(range);
      at("copy").textContent = "selected";
    }
  });

  document.title = `${document.title}: ${document.querySelector("h1").textContent.slice(0, 80)}`;
  setInterval(() => { if (newest !== null && source && source.readyState === EventSource.OPEN) tellPulse(); }, 1000);
  stand();
  open();
})();
