// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0
//
// Returns a list of sentences about what is wrong with the page as it is laid
// out: something does not fit, overlaps, is too small or too faint, or has no
// name for who does not see it.
(() => {
	const alone = false // a picture by itself, not a page
	const wrong = []
	const name = e => e.tagName + " " + JSON.stringify((e.textContent || "").trim().slice(0, 60))
	document.querySelectorAll("details").forEach(d => { d.open = true })

	// Width.
	const width = document.documentElement.clientWidth
	if (!alone && document.documentElement.scrollWidth > width)
		wrong.push(`the page is ${document.documentElement.scrollWidth} wide on a screen of ${width}`)
	for (const e of document.querySelectorAll("body *")) {
		const r = e.getBoundingClientRect()
		if (!e.closest("svg, .scroll") && r.right > width + 1) wrong.push(`${name(e)} sticks out to ${r.right} of ${width}`)
	}

	// Pictures.
	const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
		Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2
	const pictures = [...document.querySelectorAll("svg")]
	if (pictures.length === 0) wrong.push("there is no picture")
	for (const svg of pictures) {
		const frame = svg.getBoundingClientRect()
		const title = svg.querySelector("title")?.textContent
		if (!title) wrong.push("a picture has no title")
		if (svg.getAttribute("role") !== "img") wrong.push(`the picture ${title} is not said to be one`)
		if (frame.width < 250 || frame.height < 40) wrong.push(`the picture ${title} is ${frame.width} by ${frame.height}`)
		const scale = frame.width / svg.viewBox.baseVal.width
		const texts = [...svg.querySelectorAll("text")].map(e => ({ e, box: e.getBoundingClientRect() }))
		const bars = [...svg.querySelectorAll("rect:not(.paper)")].map(e => e.getBoundingClientRect())
		texts.forEach(({ e, box }, i) => {
			if (box.left < frame.left || box.right > frame.right || box.top < frame.top || box.bottom > frame.bottom)
				wrong.push(`${title}: ${name(e)} leaves the picture`)
			if (parseFloat(getComputedStyle(e).fontSize) * scale < 8.5) wrong.push(`${title}: ${name(e)} is too small to read`)
			for (const other of texts.slice(i + 1))
				if (meet(box, other.box)) wrong.push(`${title}: ${name(e)} and ${name(other.e)} overlap`)
			if (bars.some(bar => meet(box, bar))) wrong.push(`${title}: ${name(e)} lies over a bar`)
		})
	}

	// Contrast, after WCAG 2: 4.5 to 1 for text, 3 to 1 for what is drawn.
	const channels = c => c.match(/[\d.]+/g).map(Number)
	const light = c => {
		const [r, g, b] = channels(c).map(x => x / 255).map(x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4)
		return 0.2126 * r + 0.7152 * g + 0.0722 * b
	}
	const contrast = (a, b) => {
		const [high, low] = [light(a), light(b)].sort((x, y) => y - x)
		return (high + 0.05) / (low + 0.05)
	}
	const paper = e => {
		for (; e; e = e.parentElement) {
			const c = getComputedStyle(e).backgroundColor
			if (channels(c)[3] !== 0) return c
		}
		return "rgb(255, 255, 255)"
	}
	const faint = new Set()
	for (const e of document.querySelectorAll("h1, h2, h3, p, li, td, th, caption, a, .mark, figcaption, pre"))
		if (contrast(getComputedStyle(e).color, paper(e)) < 4.5) faint.add(`${e.tagName}.${e.className}`)
	for (const svg of pictures) {
		const below = getComputedStyle(svg.querySelector(".paper")).fill
		for (const e of svg.querySelectorAll("text, rect:not(.paper)"))
			if (contrast(getComputedStyle(e).fill, below) < (e.tagName === "text" ? 4.5 : 2.3)) faint.add(`${e.tagName}.${e.getAttribute("class")}`)
	}
	faint.forEach(f => wrong.push(`${f} is too faint`))

	// Structure.
	if (!alone) {
		if (!document.title || document.documentElement.lang !== "en") wrong.push("the page has no title or no language")
		if (document.querySelectorAll("h1").length !== 1) wrong.push("the page has not one main heading")
		let level = 0
		for (const h of document.querySelectorAll("h1, h2, h3")) {
			const next = Number(h.tagName[1])
			if (next > level + 1) wrong.push(`${name(h)} follows a heading of level ${level}`)
			level = next
		}
		for (const t of document.querySelectorAll("table")) {
			if (t.caption?.firstElementChild.getBoundingClientRect().right > width) wrong.push(`the caption ${t.caption.textContent} is cut off`)
			if (!t.caption?.textContent) wrong.push("a table has no caption")
			if (!t.querySelector("th[scope]")) wrong.push(`the table ${t.caption?.textContent} has no header cells`)
		}
	}
	const loaded = performance.getEntriesByType("resource").filter(r => !r.name.startsWith("data:"))
	if (loaded.length > 0) wrong.push(`the page loads ${loaded[0].name}`)
	return wrong
})()
