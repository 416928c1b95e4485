// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"unsafe"

	"github.com/isthmus-net/isthmus/sctp/assoc"
)

func newInbox() *inbox { return &inbox{more: newSignal(), quota: 1 << 20} }

// put puts a piece into an inbox.
func put(b *inbox, stream uint16, first, last bool, text string) {
	b.put(&assoc.Data{Stream: stream, First: first, Last: last, User: []byte(text)})
}

func TestInboxJoinsPieces(t *testing.T) {
	b := newInbox()
	put(b, 1, true, false, "one ")
	put(b, 1, false, true, "message")
	put(b, 1, true, false, "begun ")
	put(b, 2, true, true, "another stream's")
	put(b, 1, false, true, "and ended")
	b.putError(ErrTruncated, MessageInfo{Stream: 3})
	b.finish(io.EOF)
	for _, want := range []struct {
		text        string
		stream      uint16
		first, last bool
		err         error
	}{
		{"one messag", 1, true, false, nil},
		{"e", 1, false, true, nil},
		{"begun ", 1, true, false, nil},
		{"another st", 2, true, false, nil},
		{"ream's", 2, false, true, nil},
		{"and ended", 1, false, true, nil},
		{"", 3, false, false, ErrTruncated},
		{"", 0, false, false, io.EOF},
		{"", 0, false, false, io.EOF},
	} {
		buffer := make([]byte, 10)
		n, info, _, some, err := b.read(buffer)
		if !some || string(buffer[:n]) != want.text || info.Stream != want.stream || info.First != want.first || info.Last != want.last || !errors.Is(err, want.err) {
			t.Errorf("%q, %+v, %v, want %+v", buffer[:n], info, err, want)
		}
	}
}

// TestInboxTellsOnce has the peer begin again and again, which is told once.
func TestInboxTellsOnce(t *testing.T) {
	b := newInbox()
	for range 1000 {
		b.putError(ErrRestarted, MessageInfo{})
	}
	put(b, 0, true, true, "x")
	b.putError(ErrRestarted, MessageInfo{})
	if b.pieces.length != 3 {
		t.Errorf("%d pieces wait", b.pieces.length)
	}
}

// TestInboxMemory fills an inbox, and then leaves it nearly empty for long.
func TestInboxMemory(t *testing.T) {
	b, buffer := newInbox(), make([]byte, 1<<20)
	want := bytes.Repeat([]byte("0123456789"), 50_000)
	put(b, 0, true, true, string(want))
	n, _, _, _, _ := b.read(buffer)
	if !bytes.Equal(buffer[:n], want) {
		t.Fatal("what is read is not what was put in")
	}
	if len(b.octets.list) < len(want) {
		t.Errorf("the memory for %d octets is gone at once", len(want))
	}
	for range 2 * maxRests {
		put(b, 0, true, true, "little")
		b.read(buffer)
	}
	if len(b.octets.list) > leastOctets {
		t.Errorf("%d octets of memory are kept", len(b.octets.list))
	}
}

// TestSmallMessagesTakeTheirCost fills an inbox with messages of one octet: they take no more memory than they count in the
// receive buffer.
func TestSmallMessagesTakeTheirCost(t *testing.T) {
	b, cost := newInbox(), 0
	octet := assoc.Data{First: true, Last: true, User: []byte("x")}
	for cost < 256<<10 {
		b.put(&octet)
		cost += octet.Cost()
	}
	if taken := len(b.pieces.list)*int(unsafe.Sizeof(piece{})) + len(b.octets.list); taken > cost {
		t.Errorf("%d octets of memory, which count %d", taken, cost)
	}
	credit, buffer := 0, make([]byte, 10)
	for b.ready > 0 {
		b.read(buffer)
	}
	if credit = b.close(); credit != cost {
		t.Errorf("%d are given back of %d", credit, cost)
	}
}

func TestClosedInboxTakesNothing(t *testing.T) {
	b := newInbox()
	put(b, 0, true, true, "unread")
	if credit := b.close(); credit != 6+assoc.PieceCost {
		t.Errorf("%d are given back for what was not read", credit)
	}
	if credit := b.put(&assoc.Data{User: []byte("late")}); credit != 4+assoc.PieceCost || b.pieces.length != 0 {
		t.Errorf("%d are given back for what came late, and %d pieces are kept", credit, b.pieces.length)
	}
}

// TestInboxShowsNoHalfMessage has a reader come while the engine hands a message over piece by piece: it gets the whole,
// or, of a message that is too large to wait for, what there is at the end of the turn.
func TestInboxShowsNoHalfMessage(t *testing.T) {
	b := inbox{more: newSignal(), quota: 1 << 20}
	to := make([]byte, 100)
	b.put(&assoc.Data{User: []byte("one "), First: true})
	if n, _, _, some, _ := b.read(to); some {
		t.Fatalf("half a message is read: %q", to[:n])
	}
	b.put(&assoc.Data{User: []byte("message"), Last: true})
	b.put(&assoc.Data{User: []byte("the beginning"), First: true})
	if n, info, _, some, err := b.read(to); !some || err != nil || string(to[:n]) != "one message" || !info.First || !info.Last {
		t.Errorf("read is %q, %+v, %v", to[:n], info, err)
	}
	if _, _, _, some, _ := b.read(to); some {
		t.Error("the beginning of a message is read before the turn is over")
	}
	b.publish()
	if n, info, _, some, err := b.read(to); !some || err != nil || string(to[:n]) != "the beginning" || !info.First || info.Last {
		t.Errorf("read is %q, %+v, %v", to[:n], info, err)
	}
}
