// Round numbers along an axis.

/** At most so many. */
const MOST = 8;

/** Round numbers between two, with their words. */
export function ticks(low: number, high: number): { at: number; words: string }[] {
  const least = (high - low) / MOST;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = ([1, 2, 5, 10].find((times) => times * power >= least) ?? 10) * power;
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const first = Math.ceil(low / step - 1e-9);
  const count = Math.floor(high / step + 1e-9) - first + 1;
  return Array.from({ length: Math.max(0, count) }, (_, i) => {
    const at = (first + i) * step;
    return { at, words: at.toFixed(digits) };
  });
}
