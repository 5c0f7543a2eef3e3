"use strict";
// Everything from the text, the question and the server is put in as text, never as HTML.
const element = id => document.getElementById(id);
const percent = probability => (100 * probability).toFixed(1) + " %";
const isShown = probability => percent(probability) !== percent(0);
const example = {
  context: "The Melqueen sails to Norford. Dorla commands the Melqueen. The Melqueen carries silk. " +
    "Since 1742 the Garwind has been at sea.",
  question: "Who is the captain of the Melqueen?",
};

let asked = [];   // the text as code points: the server's positions count them, JavaScript's strings count UTF-16 units
let answers = [];

function say(text, isError) {
  element("status").textContent = text;
  element("status").className = isError ? "error" : "";
}

// Marks answer number `index` in the text, its row in the table, and scrolls to it.
function show(index) {
  const answer = answers[index];
  const marked = element("marked");
  marked.replaceChildren();
  if (answer.answer === "") {
    marked.append(asked.join(""));
    element("answer").textContent = "No answer in this text (" + percent(answer.score) + ")";
  } else {
    const mark = document.createElement("mark");
    mark.textContent = asked.slice(answer.start, answer.end).join("");
    mark.title = percent(answer.score);
    marked.append(asked.slice(0, answer.start).join(""), mark, asked.slice(answer.end).join(""));
    element("answer").textContent = mark.textContent + " (" + percent(answer.score) + ")";
    mark.scrollIntoView({block: "nearest"});
  }
  [...element("answers").children].forEach((row, i) => row.classList.toggle("chosen", i === index));
}

function fillTable() {
  element("answers").replaceChildren(...answers.map((answer, index) => {
    const row = document.createElement("tr");
    const place = answer.answer === "" ? "" : answer.start + "–" + answer.end;
    for (const text of [percent(answer.score), answer.answer === "" ? "(no answer)" : answer.answer, place]) {
      row.insertCell().textContent = text;
    }
    row.tabIndex = 0;
    row.addEventListener("click", () => show(index));
    row.addEventListener("keydown", event => { if (event.key === "Enter") show(index); });
    return row;
  }));
}

async function ask() {
  const context = element("context").value;
  element("ask").disabled = true;
  element("result").hidden = true;
  say("Reading …", false);
  try {
    const response = await fetch("/", {
      method: "POST",
      headers: {"Content-Type": "application/json"},
      body: JSON.stringify({inputs: {question: element("question").value, context}, parameters: {top_k: 10}}),
    });
    const result = await response.json();
    if (!response.ok) throw new Error(result.error);
    asked = Array.from(context);
    // What would read 0.0 % is no answer that anybody looks for; the best one is shown in any case.
    answers = result.filter((answer, index) => index === 0 || isShown(answer.score));
    element("rest").textContent = answers.length < result.length ? "; others have less than 0.05 %" : "";
    element("result").hidden = false;
    fillTable();
    show(0);
    say("", false);
  } catch (error) {
    say(error.message, true);
  } finally {
    element("ask").disabled = false;
  }
}

element("form").addEventListener("submit", event => { event.preventDefault(); ask(); });

element("try").addEventListener("click", () => {
  element("context").value = example.context;
  element("question").value = example.question;
  ask();
});

// A model's name for people: the end of a path or of a name on the Hub; where that says little, also what is before it.
function titleOf(model) {
  const parts = model.split("/").filter(part => part !== "" && part !== ".");
  const last = parts[parts.length - 1] || model;
  return /^(checkpoint-\d+|model)$/.test(last) && parts.length > 1 ? parts[parts.length - 2] + ", " + last : last;
}

fetch("/info").then(response => response.json()).then(info => {
  const title = titleOf(info.model);
  document.title = title + " – ask a text";
  element("model").textContent = title + ", " + info.parameters.toLocaleString("en") + " parameters";
  element("model").title = info.model;
});

// A link can carry a question, /?question=…&context=…, or ask for the example, /?example.
const query = new URLSearchParams(location.search);
if (query.has("context")) element("context").value = query.get("context");
if (query.has("question")) element("question").value = query.get("question");
if (query.has("context") && query.has("question")) ask();
if (query.has("example")) element("try").click();
