// @anthropic-ai/sdk: Messages, plain, streamed, with the stream helper, and failures.

import Anthropic from "@anthropic-ai/sdk";
import { PAGE_MODEL, PARAMETERS, QUESTION, all, base, key, play } from "./play.mjs";

const client = new Anthropic({ baseURL: base, apiKey: key, maxRetries: 0 });
const messages = [{ role: "user", content: QUESTION }];
const tools = [{ name: "get_weather", description: "w", input_schema: PARAMETERS }];
const create = (model, more = {}) => client.messages.create({ model, max_tokens: 512, messages, ...more });
const helper = (model, more = {}) => client.messages.stream({ model, max_tokens: 512, messages, ...more });
const textOf = (message) => message.content.filter((block) => block.type === "text").map((block) => block.text).join("");

const brokenHelper = async (model) => {
  let text = "";
  const stream = helper(model);
  stream.on("text", (delta) => (text += delta));
  try {
    await stream.finalMessage();
  } catch (error) {
    return { text, message: error.message, name: error.constructor.name };
  }
  return { text };
};

await play({
  // The sample of the Streaming page as it stands, but for the output that is collected.
  page: async () => {
    let written = "";
    const process = { stdout: { write: (text) => (written += text) } };
    const console = { log: (...words) => (written += words.join(" ")) };
    const stream = client.messages.stream({
      model: "step-3-7-flash:free",
      max_tokens: 512,
      messages: [{ role: "user", content: "Hitung dari 1 sampai 3." }],
    });
    stream.on("text", (text) => process.stdout.write(text));
    const message = await stream.finalMessage();
    console.log("\ntoken:", message.usage.output_tokens);
    return written;
  },
  create: async () => {
    const message = await create(PAGE_MODEL);
    return { text: textOf(message), stop: message.stop_reason, model: message.model, usage: message.usage };
  },
  streamed: async () => (await all(await create(PAGE_MODEL, { stream: true }))).map((event) => event.type),
  reasoning: async () => {
    const message = await helper("thinks").finalMessage();
    const [thought] = message.content;
    return { kind: thought.type, thinking: thought.thinking, signature: thought.signature, text: textOf(message) };
  },
  reasoning_plain: async () => {
    const message = await create("thinks");
    const [thought] = message.content;
    return { kind: thought.type, thinking: thought.thinking, signature: thought.signature, text: textOf(message) };
  },
  calls: async () => {
    const message = await helper("calls", { tools }).finalMessage();
    return { stop: message.stop_reason, calls: message.content.map((block) => [block.id, block.name, block.input]) };
  },
  cut: async () => (await helper("cut").finalMessage()).stop_reason,
  quiet: async () => textOf(await helper("quiet").finalMessage()),
  count: async () => (await client.messages.countTokens({ model: PAGE_MODEL, messages })).input_tokens,
  models: async () => (await all(client.models.list({ limit: 1000 }))).map((model) => model.id),
  refused: () => create("refuses", { stream: true }),
  overflown: () => create("overflows", { stream: true }),
  limited: () => create("limits"),
  unknown: () => create("nobody"),
  breaks: () => brokenHelper("breaks"),
  fails: () => brokenHelper("fails"),
  plain_breaks: () => create("breaks"),
  wrong_key: () => new Anthropic({ baseURL: base, apiKey: "kn-wrong" }).messages.create({ model: PAGE_MODEL, max_tokens: 9, messages }),
});
