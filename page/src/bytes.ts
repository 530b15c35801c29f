// Values that the report holds in base64.

interface FromBase64 {
  fromBase64?: (text: string) => Uint8Array<ArrayBuffer>;
}

export function bytes(text: string): Uint8Array<ArrayBuffer> {
  const native = (Uint8Array as unknown as FromBase64).fromBase64;
  if (native) return native.call(Uint8Array, text);
  const raw = atob(text);
  const out = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
  return out;
}

export function floats(text: string): Float32Array {
  return new Float32Array(bytes(text).buffer);
}

export function integers(text: string): Uint32Array {
  return new Uint32Array(bytes(text).buffer);
}

/** JSON that was compressed by zlib. */
export async function inflated(text: string): Promise<unknown> {
  const stream = new Blob([bytes(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}
