// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// gap separates columns.
const gap = "  "

// Terminal escapes.
const (
	bold  = "\x1b[1m"
	red   = "\x1b[31m"
	plain = "\x1b[0m"
)

// WriteText writes the report for a person. On a terminal titles are bold and
// what is wrong is red, unless NO_COLOR is set.
func (r *Report) WriteText(w io.Writer) error {
	p := printer{colour: onTerminal(w)}
	for _, t := range r.all() {
		p.table(t)
	}
	for _, f := range r.Faults {
		p.line("%s", p.paint(red, "WRONG: ")+f)
	}
	for _, m := range r.Missed() {
		p.line("%s", p.paint(red, missMark+": ")+m)
	}
	_, err := io.WriteString(w, p.text.String())
	return err
}

// WriteText writes the table alone for a person.
func (t Table) WriteText(w io.Writer) error {
	p := printer{colour: onTerminal(w)}
	p.table(t)
	_, err := io.WriteString(w, p.text.String())
	return err
}

func onTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// printer collects the text.
type printer struct {
	text   strings.Builder
	colour bool
}

func (p *printer) line(format string, args ...any) { fmt.Fprintf(&p.text, format+"\n", args...) }

func (p *printer) paint(escape, text string) string {
	if !p.colour {
		return text
	}
	return escape + text + plain
}

// table writes a table with an empty line before and after.
func (p *printer) table(t Table) {
	widths := t.widths()
	p.line("\n%s", p.paint(bold, t.Title))
	p.row(t.Columns, widths)
	rule := make([]string, len(widths))
	for i, w := range widths {
		rule[i] = strings.Repeat("-", w)
	}
	p.row(rule, widths)
	for _, r := range t.Rows {
		p.row(r, widths)
	}
	for _, n := range t.Notes {
		p.line("%s", n)
	}
	p.line("")
}

// row writes cells padded to their widths: the first to the left, since it is
// a name, the others to the right, since they are mostly numbers.
func (p *printer) row(cells []string, widths []int) {
	var b strings.Builder
	for i, c := range cells {
		pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c))
		if i == 0 {
			b.WriteString(c + pad)
			continue
		}
		b.WriteString(gap + pad + c)
	}
	text := strings.TrimRight(b.String(), " ")
	p.line("%s", strings.Replace(text, missMark, p.paint(red, missMark), 1))
}

func (t Table) widths() []int {
	widths := make([]int, len(t.Columns))
	for _, row := range append([][]string{t.Columns}, t.Rows...) {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	return widths
}
