// What the page does by itself: it looks again when the board changed, and draws the plots.
(() => {
  "use strict";
  const live = document.getElementById("live");
  let seen = null;

  function follow() {
    const events = new EventSource("/events");
    events.addEventListener("change", (event) => {
      live.textContent = "live";
      live.classList.remove("off");
      if (seen !== null && seen !== event.data) {
        document.body.dispatchEvent(new CustomEvent("board-changed"));
      }
      seen = event.data;
    });
    events.onerror = () => {
      live.textContent = "not connected";
      live.classList.add("off");
    };
    addEventListener("pagehide", () => events.close());
  }

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function options(plot, width) {
    const lines = ["--working", "--merged", "--rejected"];
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line") }, ticks: { stroke: colour("--line") } };
    const series = plot.names.slice(1).map((name, place) => ({
      label: name, stroke: colour(lines[place]), width: 2, paths: uPlot.paths.stepped({ align: 1 }),
      points: { show: false },
    }));
    // The clock of all other pages: UTC, by 24 hours, with the day where it is more than one.
    const moment = (seconds) => new Date(seconds * 1000).toISOString();
    const times = (_, at) => {
      const hasDays = at.length > 1 && at.at(-1) - at[0] > 86400;
      return at.map((one) => (hasDays ? moment(one).slice(5, 16).replace("T", " ") : moment(one).slice(11, 16)));
    };
    const time = { label: "time", value: (_, at) => (at === null ? "--" : `${moment(at).slice(0, 16).replace("T", " ")}Z`) };
    const axes = [{ ...axis, values: times }, { ...axis, size: 56 }];
    const tzDate = (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC");
    return { width, height: 220, tzDate, series: [time, ...series], axes };
  }

  function draw() {
    for (const place of document.querySelectorAll(".plot[data-plot]")) {
      const key = `${place.dataset.plot} ${place.clientWidth} ${colour("--ink")}`;
      if (place.liza === key || place.clientWidth === 0) continue;
      place.liza = key;
      place.replaceChildren();
      const plot = JSON.parse(place.dataset.plot);
      new uPlot(options(plot, place.clientWidth), plot.values, place);
    }
  }

  document.addEventListener("htmx:after:swap", draw);
  document.addEventListener("htmx:after:request", (event) => {
    const { ctx } = event.detail;
    const form = ctx.sourceElement;
    if (form instanceof HTMLFormElement && form.method === "post" && ctx.response && ctx.response.status === 200) {
      form.reset();
    }
  });
  addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  document.addEventListener("keydown", (event) => {
    const search = document.querySelector("[role=search] input");
    if (event.key === "/" && search && !event.target.matches("input, textarea")) {
      event.preventDefault();
      search.focus();
    }
  });
  document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  follow();
  draw();
})();
