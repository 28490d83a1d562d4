// What all the scripts share: run each scenario by itself and print one JSON object, scenario -> {value} or {error}.

export const base = process.env.KENARI_URL;
export const key = process.env.KENARI_KEY;
export const PAGE_MODEL = "step-3-7-flash:free";
export const QUESTION = "Hitung dari 1 sampai 3.";
export const PARAMETERS = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};

/** Everything that can be told of an error. The AI SDK wraps the last one of several tries. */
function told(error) {
  const inner = error?.lastError ?? error;
  const body = typeof inner?.responseBody === "string" ? inner.responseBody : undefined;
  return {
    name: inner?.constructor?.name ?? typeof inner,
    status: inner?.status ?? inner?.statusCode,
    code: inner?.code ?? inner?.error?.code ?? (body?.startsWith("{") ? JSON.parse(body).error?.code : undefined),
    type: inner?.error?.error?.type ?? inner?.error?.type ?? inner?.type,
    message: String(inner?.message ?? JSON.stringify(inner)),
  };
}

/** Run the scenarios at once and print what came of each. */
export async function play(scenarios) {
  const results = await Promise.all(
    Object.entries(scenarios).map(async ([name, scenario]) => {
      try {
        return [name, { value: await scenario() }];
      } catch (error) {
        return [name, { error: told(error) }];
      }
    }),
  );
  process.stdout.write(JSON.stringify(Object.fromEntries(results)));
}

/** All values of an asynchronous sequence; a failure is thrown with what came before it in `seen`. */
export async function all(sequence) {
  const seen = [];
  for await (const one of sequence) seen.push(one);
  return seen;
}
