// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package role

import (
	"fmt"
	"io"
	"net/netip"
)

// Connection are the flags that find a running isthmus.
type Connection struct {
	Config *string `short:"c" placeholder:"FILE" help:"Configuration file (${config})."`
	Socket string  `placeholder:"PATH" help:"Control socket, if it is neither in ${control_variable} nor that of the configuration."`
}

// To are the flags of all questions: who is asked, and how the answer is shown.
type To struct {
	Connection
	Instance string `short:"i" placeholder:"NAME" help:"The instance; needed where several run."`
	JSON     bool   `help:"Print JSON."`
}

// Asker asks running instances for commands.
type Asker interface {
	// Ask has an instance answer the question that the command is named after, or follow
	// that order, and decodes the answer.
	Ask(to To, order bool, arguments, answer any) error
	// Running reports whether there is an instance of the command's role to ask. An isthmus
	// of others behind a socket that was named is an error.
	Running(to To) (bool, error)
	// Show prints an answer, as JSON or as its table.
	Show(to To, answer Table) error
	// Stats prints the counters that are not zero.
	Stats(to To) error
}

// Stats is the command line that shows the counters of instances.
type Stats struct{ To }

// Run shows them.
func (c *Stats) Run(by Asker) error { return by.Stats(c.To) }

// Table is an answer that people can read.
type Table interface {
	// Write writes rows whose columns tabs part.
	Write(w io.Writer)
}

// Emptiness is a [Table] that may hold nothing.
type Emptiness interface {
	// Nothing says so in words; empty: it holds something.
	Nothing() string
}

// Ask is the command line of a question with arguments of type A, which describes its flags
// as kong does, and an answer of type R.
type Ask[A any, R Table] struct {
	To
	Arguments A `embed:""`
}

// Run asks and shows the answer.
func (c *Ask[A, R]) Run(by Asker) error { return ask[R](by, c.To, false, c.Arguments) }

// Order is the same of an order.
type Order[A any, R Table] struct {
	To
	Arguments A `embed:""`
}

// Run gives the order and shows what was done.
func (c *Order[A, R]) Run(by Asker) error { return ask[R](by, c.To, true, c.Arguments) }

func ask[R Table](by Asker, to To, order bool, arguments any) error {
	var answer R
	if err := by.Ask(to, order, arguments, &answer); err != nil {
		return err
	}
	return by.Show(to, answer)
}

// Part chooses a part of a long list; its zero value is the first part in the usual size.
type Part struct {
	Limit int    `json:"limit" default:"100" help:"Rows at most; 0 is all."`
	From  uint32 `json:"from" hidden:"" help:"Where the part begins: what the one before has named as next."`
}

// ParsePrefix reads a prefix or one address that an argument names; empty is none.
func ParsePrefix(text string) (netip.Prefix, error) {
	if text == "" {
		return netip.Prefix{}, nil
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, fmt.Errorf("%q is neither an address nor a prefix", text)
	}
	return p.Masked(), nil
}

// Parted are arguments with a [Part].
type Parted interface{ PartOf() *Part }

// PartOf implements [Parted].
func (p *Part) PartOf() *Part { return p }

// Rows is an answer with a part of a list.
type Rows[R any] interface {
	Table
	// Join appends the next part.
	Join(next R) R
	// Next is the number of rows, and where the part behind them begins; 0 behind the last.
	Next() (rows int, from uint32)
}

// Listing is the command line of a question that is answered in parts.
type Listing[A any, P interface {
	*A
	Parted
}, R Rows[R]] struct {
	To
	Arguments A `embed:""`
}

// partRows is how many rows are asked for at a time.
const partRows = 5000

// Run asks for part after part until there are enough rows, and shows them.
func (c *Listing[A, P, R]) Run(by Asker) error {
	var all R
	part := P(&c.Arguments).PartOf()
	limit, rows := part.Limit, 0
	for {
		part.Limit = partRows
		if limit > 0 {
			part.Limit = min(partRows, limit-rows)
		}
		var more R
		if err := by.Ask(c.To, false, c.Arguments, &more); err != nil {
			return err
		}
		if rows > 0 {
			more = all.Join(more)
		}
		all = more
		if rows, part.From = all.Next(); part.From == 0 || limit > 0 && rows >= limit {
			return by.Show(c.To, all)
		}
	}
}
