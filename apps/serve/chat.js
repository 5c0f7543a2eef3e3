"use strict";
// Of a decoder: a conversation, or a text that is continued if the model has no chat template. What the model writes is
// put in as text, never as HTML. Loaded before page.js, whose functions it uses after both are there.

let messages = [];
let reading = null;  // AbortController of the answer that is being read

function addTurn(role, text) {
  const turn = document.createElement("p");
  turn.className = "turn " + role;
  turn.textContent = text;
  element("turns").append(turn);
  turn.scrollIntoView({block: "nearest"});
  return turn;
}

// Calls take(piece) with each piece of the text.
async function readEvents(response, take) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
      const chunk = JSON.parse(line.slice(6));
      if (chunk.error) throw new Error(chunk.error.message);
      for (const choice of chunk.choices) take(choice.delta ? choice.delta.content || "" : choice.text);
    }
  }
}

async function sendMessage(chat) {
  const text = element("message").value;
  const common = {stream: true, temperature: Number(element("temperature").value), max_tokens: Number(element("max_tokens").value)};
  const body = chat ? {messages: [...messages, {role: "user", content: text}], ...common} : {prompt: text, ...common};
  const turns = [addTurn("user", text), addTurn("assistant", "")];
  reading = new AbortController();
  element("send").disabled = true;
  element("stop").disabled = false;
  showStatus("", false);
  try {
    const response = await fetch(chat ? "/v1/chat/completions" : "/v1/completions",
      {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(body), signal: reading.signal});
    if (!response.ok) throw new Error((await response.json()).error.message);
    await readEvents(response, piece => { turns[1].textContent += piece; });
  } catch (error) {
    if (error.name !== "AbortError") showStatus(error.message, true);
  } finally {
    element("send").disabled = false;
    element("stop").disabled = true;
    const answer = turns[1].textContent;
    if (answer === "") {
      turns.forEach(turn => turn.remove());
    } else {
      messages.push({role: "user", content: text}, {role: "assistant", content: answer});
      element("message").value = "";
    }
  }
}

function startChat(info) {
  const title = titleOf(info.model);
  element("heading").textContent = info.chat ? "Chat" : "Continue a text";
  document.title = title + " – " + element("heading").textContent.toLowerCase();
  element("model").textContent = title + ", " + info.parameters.toLocaleString("en") +
    " parameters; for programs: POST /v1/chat/completions and /v1/completions";
  element("model").title = info.model;
  element("form").hidden = true;
  element("chat").hidden = false;
  element("message_label").textContent = info.chat ? "Message" : "Text to continue";
  element("max_tokens").max = info.max_new_tokens;
  element("max_tokens").value = Math.min(256, Math.floor(info.max_new_tokens / 2) || 1);
  element("chat").addEventListener("submit", event => { event.preventDefault(); sendMessage(info.chat); });
  element("stop").addEventListener("click", () => reading.abort());
  element("clear").addEventListener("click", () => {
    if (reading) reading.abort();
    messages = [];
    element("turns").replaceChildren();
  });
  element("message").addEventListener("keydown", event => {
    if (event.key !== "Enter" || event.shiftKey || element("send").disabled) return;
    event.preventDefault();
    element("chat").requestSubmit();
  });
  element("message").focus();
}
