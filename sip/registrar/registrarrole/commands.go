// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/sip/location"
	"github.com/isthmus-net/isthmus/sip/registrar"
)

// commands are the command line of a registrar.
type commands struct {
	Bindings listing                              `cmd:"" help:"List bindings."`
	Remove   role.Order[removeArguments, Removed] `cmd:"" help:"Remove bindings; the terminal may register again."`
	Stats    role.Stats                           `cmd:"" help:"Show what was answered, passed on and dropped."`
}

// listArguments choose bindings for a list.
type listArguments struct {
	Limit   int    `json:"limit" default:"100" help:"Rows at most; 0 is all."`
	After   *Place `json:"after,omitempty" kong:"-"`
	Address string `json:"address,omitempty" placeholder:"URI" help:"Of this address of record only."`
}

// Place is that of a binding in lists, which does not change when others come and go.
type Place struct {
	Address  string `json:"address"`
	Contact  string `json:"contact"`
	Instance string `json:"instance,omitempty"`
	RegID    uint32 `json:"reg_id,omitempty"`
}

func (p Place) compare(q Place) int {
	return cmp.Or(
		strings.Compare(p.Address, q.Address), strings.Compare(p.Contact, q.Contact),
		strings.Compare(p.Instance, q.Instance), cmp.Compare(p.RegID, q.RegID),
	)
}

// listing asks for bindings part after part, each of which begins behind the last row of the one before. A
// [role.Listing] would go on by a number, and miss rows, or show some twice, where bindings come and go meanwhile.
type listing struct {
	role.To
	Arguments listArguments `embed:""`
}

// Run asks until there are enough rows, and shows them.
func (c *listing) Run(by role.Asker) error {
	var all Bindings
	part, limit := c.Arguments, c.Arguments.Limit
	for {
		part.Limit = maxRows
		if limit > 0 {
			part.Limit = min(maxRows, limit-len(all.Bindings))
		}
		var more Bindings
		if err := by.Ask(c.To, false, part, &more); err != nil {
			return err
		}
		all.Bindings, all.After = append(all.Bindings, more.Bindings...), more.After
		if part.After = more.After; more.After == nil || limit > 0 && len(all.Bindings) >= limit {
			return by.Show(c.To, all)
		}
	}
}

// removeArguments choose bindings to remove.
type removeArguments struct {
	Address string `json:"address" required:"" placeholder:"URI" help:"Of this address of record."`
	Contact string `json:"contact,omitempty" placeholder:"URI" help:"This contact."`
	All     bool   `json:"all,omitempty" help:"All of its contacts."`
}

// Bindings are contacts of addresses of record. After is the place of the last of them where more follow.
type Bindings struct {
	Bindings []Binding `json:"bindings"`
	After    *Place    `json:"after,omitempty"`
}

// Binding is one contact.
type Binding struct {
	Address  string    `json:"address"`
	Contact  string    `json:"contact"`
	Expires  time.Time `json:"expires"`
	Updated  time.Time `json:"updated"`
	Q        float64   `json:"q"`
	Instance string    `json:"instance,omitempty"`
	RegID    uint32    `json:"reg_id,omitempty"`
	Path     []string  `json:"path,omitempty"`
	CallID   string    `json:"call_id"`
	// Flow is the connection by which the terminal is reached, in place of its contact.
	Flow string `json:"flow,omitempty"`
}

func (b *Binding) place() Place { return Place{b.Address, b.Contact, b.Instance, b.RegID} }

func bindingOf(aor string, b *location.Binding) Binding {
	one := Binding{
		Address: aor, Contact: b.URI.String(), Expires: b.Expires.Truncate(time.Second), Updated: b.Updated.Truncate(time.Second),
		Q: float64(b.Q) / 1000, Instance: b.Instance, RegID: b.RegID, Path: b.Path, CallID: b.CallID,
	}
	if t, ok := registrar.ParseFlow(b.Flow); ok {
		one.Flow = fmt.Sprintf("%s %s", t.Transport, t.Remote)
	}
	return one
}

// Write implements [role.Table].
func (l Bindings) Write(w io.Writer) {
	fmt.Fprintln(w, "ADDRESS\tCONTACT\tEXPIRES\tQ\tFLOW")
	for _, b := range l.Bindings {
		fmt.Fprintf(w, "%s\t%s\t%s\t%g\t%s\n", b.Address, b.Contact, max(time.Until(b.Expires), 0).Round(time.Second), b.Q, b.Flow)
	}
}

// Nothing implements [role.Emptiness].
func (l Bindings) Nothing() string {
	if len(l.Bindings) > 0 {
		return ""
	}
	return "nobody has registered"
}

// Removed is how many bindings are gone.
type Removed struct {
	Removed int `json:"removed"`
}

// Write implements [role.Table].
func (d Removed) Write(w io.Writer) { fmt.Fprintf(w, "bindings removed: %d\n", d.Removed) }

// Nothing implements [role.Emptiness].
func (d Removed) Nothing() string {
	if d.Removed > 0 {
		return ""
	}
	return "there is no such binding"
}
