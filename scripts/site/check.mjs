// Open each page of a built site in Chromium, and tell what axe finds, what fails to load, and what is wider than
// the page; with a second folder, keep a picture of each.
//
//   node check.mjs SITE [PICTURES]
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

const faults = [];
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"],
});
for (const look of looks) {
  const how = `${look.colorScheme}, ${look.viewport.width} pixels`;
  const context = await browser.newContext(look);
  const page = await context.newPage();
  let here = "";
  page.on("pageerror", (error) => faults.push(`${here} (${how}): ${error.message}`));
  page.on("request", (request) => {
    if (!request.url().startsWith("file:") && !request.url().startsWith("data:"))
      faults.push(`${here} (${how}): asks the network for ${request.url()}`);
  });
  for (const name of pages) {
    here = name;
    await page.goto(pathToFileURL(path.resolve(site, name)).href);
    await page.evaluate(axe.source);
    const { violations } = await page.evaluate(() => window.axe.run());
    for (const { id, help, nodes } of violations)
      for (const { target } of nodes) faults.push(`${name} (${how}): ${id}: ${help}: ${target.join(" ")}`);
    const excess = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    if (excess > 0) faults.push(`${name} (${how}): ${excess} pixels wider than the window`);
    const broken = await page.evaluate(() => [...document.images].filter((i) => i.complete && !i.naturalWidth).map((i) => i.src));
    for (const image of broken) faults.push(`${name} (${how}): no image ${image}`);
    if (pictures) {
      const file = `${name.replaceAll("/", "_").replace(".html", "")}-${look.colorScheme}-${look.viewport.width}.png`;
      await page.screenshot({ path: path.join(pictures, file), fullPage: true });
    }
  }
  await context.close();
}
await browser.close();
for (const fault of faults) console.error(fault);
process.exitCode = faults.length ? 1 : 0;
