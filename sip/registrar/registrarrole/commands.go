// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"fmt"
	"io"
	"time"

	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/sip/location"
	"github.com/isthmus-net/isthmus/sip/registrar"
)

// commands are the command line of a registrar.
type commands struct {
	Bindings role.Listing[listArguments, *listArguments, Bindings] `cmd:"" help:"List bindings."`
	Remove   role.Order[removeArguments, Removed]                  `cmd:"" help:"Remove bindings; the terminal may register again."`
	Stats    role.Stats                                            `cmd:"" help:"Show what was answered, passed on and dropped."`
}

// listArguments choose bindings for a list.
type listArguments struct {
	role.Part
	Address string `json:"address,omitempty" placeholder:"URI" help:"Of this address of record only."`
}

// removeArguments choose bindings to remove.
type removeArguments struct {
	Address string `json:"address" required:"" placeholder:"URI" help:"Of this address of record."`
	Contact string `json:"contact,omitempty" placeholder:"URI" help:"This contact."`
	All     bool   `json:"all,omitempty" help:"All of its contacts."`
}

// Bindings are contacts of addresses of record. From is where the part behind them begins, 0 behind
// the last.
type Bindings struct {
	Bindings []Binding `json:"bindings"`
	From     uint32    `json:"from,omitempty"`
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

// Join implements [role.Rows].
func (l Bindings) Join(next Bindings) Bindings {
	next.Bindings = append(l.Bindings, next.Bindings...)
	return next
}

// Next implements [role.Rows].
func (l Bindings) Next() (int, uint32) { return len(l.Bindings), l.From }

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
