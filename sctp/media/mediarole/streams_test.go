// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediarole

import (
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/sctp/media/transfer"
)

// TestOneStream: a client that takes one stream, which is that for control, is refused with a reason, and can still ask for a
// list. With two it gets all by one of them.
func TestOneStream(t *testing.T) {
	w := newWorld(t)
	w.file("film", 10_000)
	i := w.serve("")
	one := quickClient()
	one.Parameters.StreamsIn = 1
	c := w.mustDial(one, both)
	if err := c.Conn().WriteMessage((&transfer.Request{Transfer: 1, Name: "film"}).Append(nil), control); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, transfer.MaxControl)
	n, _, err := c.Conn().ReadMessage(b)
	if err != nil {
		t.Fatal(err)
	}
	m, err := transfer.Parse(b[:n])
	if a, is := m.(*transfer.Answer); err != nil || !is || a.Status != transfer.Refused || !strings.Contains(a.Text, "stream") {
		t.Errorf("the answer is %+v, %v", m, err)
	}
	if list, err := c.List(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("listed are %v, %v", list, err)
	}
	if dropped(i, "refused") != 1 || dropped(i, "association_ended") != 0 {
		t.Errorf("refused are %v, and %v have ended", dropped(i, "refused"), dropped(i, "association_ended"))
	}
	one.Parameters.StreamsIn = 2
	if _, r := w.mustGet(w.mustDial(one, both), transfer.Request{Name: "film"}); r.Streams != 1 {
		t.Errorf("%d streams have data", r.Streams)
	}
}
