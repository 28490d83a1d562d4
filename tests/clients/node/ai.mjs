// The AI SDK (`ai`) with one of its providers, named in KENARI_PROVIDER: generateText, streamText, tools, failures.

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenResponses } from "@ai-sdk/open-responses";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import { PAGE_MODEL, PARAMETERS, QUESTION, base, key, play } from "./play.mjs";

const v1 = `${base}/v1`;
const providers = {
  openai: () => createOpenAI({ baseURL: v1, apiKey: key }),
  anthropic: () => createAnthropic({ baseURL: v1, apiKey: key }),
  "openai-compatible": () => createOpenAICompatible({ name: "kenari", baseURL: v1, apiKey: key, includeUsage: true }),
  "open-responses": () => createOpenResponses({ name: "kenari", url: `${v1}/responses`, apiKey: key }),
};
const provider = providers[process.env.KENARI_PROVIDER]();
const common = (model) => ({
  model: provider(model),
  prompt: QUESTION,
  maxRetries: 0,
  maxOutputTokens: 512,
  providerOptions: { openai: { store: false } },
});
const asked = [];
const tools = {
  get_weather: tool({
    description: "the weather of a city",
    inputSchema: jsonSchema(PARAMETERS),
    execute: async ({ city }) => {
      asked.push(city);
      return `31 C in ${city}`;
    },
  }),
};

/** A streamed answer, part by part. Failures come as parts of type error. */
async function streamed(model, more = {}) {
  const result = streamText({ ...common(model), ...more, onError: () => {} });
  const out = { text: "", reasoning: "", calls: [], error: null, finish: null };
  for await (const part of result.fullStream) {
    if (part.type === "text-delta") out.text += part.text;
    if (part.type === "reasoning-delta") out.reasoning += part.text;
    if (part.type === "tool-call") out.calls.push([part.toolCallId, part.toolName, part.input, part.invalid ?? false]);
    if (part.type === "error") out.error = { message: String(part.error?.message ?? JSON.stringify(part.error)), status: part.error?.statusCode };
    if (part.type === "finish") {
      out.finish = part.finishReason;
      out.usage = part.totalUsage;
    }
  }
  return out;
}

async function generated(model, more = {}) {
  const result = await generateText({ ...common(model), ...more });
  return {
    text: result.text,
    reasoning: result.reasoningText ?? "",
    calls: result.toolCalls.map((call) => [call.toolCallId, call.toolName, call.input, call.invalid ?? false]),
    finish: result.finishReason,
    usage: result.usage,
    warnings: result.warnings,
  };
}

const client_tools = { get_weather: tool({ description: "w", inputSchema: jsonSchema(PARAMETERS) }) };

await play({
  text: () => streamed(PAGE_MODEL),
  text_plain: () => generated(PAGE_MODEL),
  reasoning: () => streamed("thinks"),
  reasoning_plain: () => generated("thinks"),
  calls: () => streamed("calls", { tools: client_tools }),
  calls_plain: () => generated("calls", { tools: client_tools }),
  cut: () => streamed("cut"),
  quiet: () => streamed("quiet"),
  // The tool loop of the SDK: two steps, with the calls and their results sent back.
  loop: async () => {
    const result = await generateText({ ...common("calls"), tools, stopWhen: stepCountIs(2) });
    return { steps: result.steps.length, asked: asked.sort(), results: result.steps[0].toolResults.map((one) => one.output) };
  },
  refused: () => streamed("refuses"),
  refused_plain: () => generated("refuses"),
  overflown_plain: () => generated("overflows"),
  limited_plain: () => generated("limits"),
  unknown_plain: () => generated("nobody"),
  breaks: () => streamed("breaks"),
  fails: () => streamed("fails"),
  breaks_plain: () => generated("breaks"),
});
