// Open each page of a built site in Chromium, and tell what axe finds, what fails to load, and what is wider than
// the page; with a second folder, keep a picture of each.
//
//   CHROMIUM=/usr/bin/chromium node check.mjs SITE [PICTURES]
import { readdirSync } from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import axe from "axe-core";
import { chromium } from "playwright-core";

const [site, pictures] = process.argv.slice(2);
const pages = readdirSync(site, { recursive: true }).filter((name) => name.endsWith(".html") && !name.startsWith("_"));
const looks = [
  { colorScheme: "light", viewport: { width: 1440, height: 1000 } },
  { colorScheme: "dark", viewport: { width: 390, height: 844 } },
];
if (pictures)
  looks.push(
    { colorScheme: "dark", viewport: { width: 1440, height: 1000 } },
    { colorScheme: "light", viewport: { width: 390, height: 844 } },
  );

const TABS = 4;
// Milliseconds for a page, where other things have the processors.
const PATIENCE = 600_000;

const faults = [];
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM,
  args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"],
});
for (const look of looks) {
  const context = await browser.newContext({ ...look, reducedMotion: "reduce" });
  context.setDefaultTimeout(PATIENCE);
  const left = pages.values();
  await Promise.all(Array.from({ length: TABS }, async () => checkAll(await context.newPage(), left, look)));
  await context.close();
}
await browser.close();
for (const fault of faults) console.error(fault);
process.exitCode = faults.length ? 1 : 0;

// Check pages in one tab, until none is left.
async function checkAll(page, left, { colorScheme, viewport }) {
  let here = "";
  const complain = (words) => faults.push(`${here} (${colorScheme}, ${viewport.width} pixels): ${words}`);
  page.on("pageerror", (error) => complain(error.message));
  page.on("request", (request) => {
    if (!/^(file|data):/.test(request.url())) complain(`asks the network for ${request.url()}`);
  });
  for (const name of left) {
    here = name;
    await page.goto(pathToFileURL(path.resolve(site, name)).href);
    await page.evaluate(axe.source);
    const { violations } = await page.evaluate(() => window.axe.run());
    for (const { id, help, nodes } of violations)
      for (const { target } of nodes) complain(`${id}: ${help}: ${target.join(" ")}`);
    const { excess, broken } = await page.evaluate(() => ({
      excess: document.documentElement.scrollWidth - window.innerWidth,
      broken: [...document.images].filter((image) => image.complete && !image.naturalWidth).map(({ src }) => src),
    }));
    if (excess > 0) complain(`${excess} pixels wider than the window`);
    for (const image of broken) complain(`no image ${image}`);
    if (pictures) {
      const file = `${name.replaceAll("/", "_").replace(".html", "")}-${colorScheme}-${viewport.width}.png`;
      await page.screenshot({ path: path.join(pictures, file), fullPage: true });
    }
  }
}
