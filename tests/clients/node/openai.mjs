// openai (npm): chat completions and Responses, plain, streamed, with the stream helpers, and failures.

import OpenAI from "openai";
import { PAGE_MODEL, PARAMETERS, QUESTION, all, base, key, play } from "./play.mjs";

const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: key, maxRetries: 0 });
const messages = [{ role: "user", content: QUESTION }];
const chatTool = { type: "function", function: { name: "get_weather", description: "w", parameters: PARAMETERS } };
const tool = { type: "function", name: "get_weather", description: "w", parameters: PARAMETERS, strict: null };
const chat = (model, more = {}) => client.chat.completions.create({ model, messages, ...more });
const responses = (model, more = {}) => client.responses.create({ model, input: QUESTION, ...more });

const brokenChat = async (model) => {
  let text = "";
  try {
    for await (const chunk of await chat(model, { stream: true })) text += chunk.choices[0]?.delta?.content ?? "";
  } catch (error) {
    return { text, code: error.code, message: error.message };
  }
  return { text };
};

await play({
  // The sample of the Streaming page as it stands, but for the output that is collected.
  page_chat: async () => {
    let written = "";
    const process = { stdout: { write: (text) => (written += text) } };
    const stream = await client.chat.completions.create({
      model: "step-3-7-flash:free",
      messages: [{ role: "user", content: "Hitung dari 1 sampai 3." }],
      stream: true,
    });
    for await (const chunk of stream) {
      const text = chunk.choices[0]?.delta?.content;
      if (text) process.stdout.write(text);
    }
    return written;
  },
  // The sample of the Responses page.
  page_responses: async () => {
    let written = "";
    const console = { log: (text) => (written += text) };
    const response = await client.responses.create({
      model: "step-3-7-flash:free",
      instructions: "Kamu menjawab dengan singkat.",
      input: "Halo!",
    });
    console.log(response.output_text);
    return written;
  },
  chat_create: async () => {
    const answer = await chat(PAGE_MODEL);
    return { text: answer.choices[0].message.content, finish: answer.choices[0].finish_reason, usage: answer.usage };
  },
  chat_reasoning: async () => {
    const chunks = await all(await chat("thinks", { stream: true }));
    return {
      reasoning: chunks.map((chunk) => chunk.choices[0].delta.reasoning ?? "").join(""),
      reasoning_content: chunks.map((chunk) => chunk.choices[0].delta.reasoning_content ?? "").join(""),
      text: chunks.map((chunk) => chunk.choices[0].delta.content ?? "").join(""),
      usage: chunks.at(-1).usage,
    };
  },
  chat_helper: async () => {
    const stream = client.chat.completions.stream({ model: PAGE_MODEL, messages });
    let text = "";
    stream.on("content", (delta) => (text += delta));
    const final = await stream.finalChatCompletion();
    return { text, finish: final.choices[0].finish_reason, usage: final.usage };
  },
  chat_helper_calls: async () => {
    const stream = client.chat.completions.stream({ model: "calls", messages, tools: [chatTool] });
    const final = await stream.finalChatCompletion();
    return {
      finish: final.choices[0].finish_reason,
      calls: final.choices[0].message.tool_calls.map((call) => [call.id, call.function.name, call.function.arguments]),
    };
  },
  chat_cut: async () => (await chat("cut")).choices[0].finish_reason,
  chat_quiet: async () => {
    const final = await client.chat.completions.stream({ model: "quiet", messages }).finalChatCompletion();
    return final.choices[0].message.content;
  },
  responses_create: async () => {
    const answer = await responses(PAGE_MODEL);
    return { text: answer.output_text, status: answer.status, usage: answer.usage };
  },
  responses_streamed: async () => {
    const events = await all(await responses(PAGE_MODEL, { stream: true }));
    return { kinds: events.map((event) => event.type), text: events.at(-1).response.output[0].content[0].text };
  },
  responses_helper: async () => {
    const stream = client.responses.stream({ model: "thinks", input: QUESTION });
    let text = "";
    stream.on("response.output_text.delta", (event) => (text += event.delta));
    const final = await stream.finalResponse();
    return { text, final: final.output_text, kinds: final.output.map((item) => item.type), usage: final.usage };
  },
  responses_helper_calls: async () => {
    const final = await client.responses.stream({ model: "calls", input: QUESTION, tools: [tool] }).finalResponse();
    return { calls: final.output.map((item) => [item.call_id, item.name, item.arguments]) };
  },
  responses_cut: async () => {
    const final = await client.responses.stream({ model: "cut", input: QUESTION }).finalResponse();
    return [final.status, final.incomplete_details.reason];
  },
  responses_quiet: async () =>
    (await client.responses.stream({ model: "quiet", input: QUESTION }).finalResponse()).output_text,
  chat_refused: () => chat("refuses", { stream: true }),
  chat_overflown: () => chat("overflows", { stream: true }),
  chat_limited: () => chat("limits"),
  chat_unknown: () => chat("nobody"),
  responses_refused: () => responses("refuses", { stream: true }),
  chat_breaks: () => brokenChat("breaks"),
  chat_fails: () => brokenChat("fails"),
  chat_helper_breaks: () => client.chat.completions.stream({ model: "breaks", messages }).finalChatCompletion(),
  responses_breaks: async () => (await all(await responses("breaks", { stream: true }))).at(-1),
  plain_breaks: () => chat("breaks"),
  wrong_key: () => new OpenAI({ baseURL: `${base}/v1`, apiKey: "kn-wrong" }).chat.completions.create({ model: PAGE_MODEL, messages }),
});
