// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package assoc

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestRareMessagesFindRoom fills the send buffer by some streams while nothing gets through: messages of another stream
// still find room, one after the other, and go by their turn before what waits, a packet's worth at a time (RFC 8260 section
// 3.3).
func TestRareMessagesFindRoom(t *testing.T) {
	for _, tt := range []struct {
		interleaving  bool
		streams, size int // of bulk data
		waiting       int // of all bulk streams may go before each ten rare messages
	}{
		{false, 1, 1000, 1}, {false, 3, 1000, 3}, {false, 3, 10000, 4}, {true, 3, 10000, 3}, {false, 7, 300, 28},
	} {
		t.Run(fmt.Sprintf("%+v", tt), func(t *testing.T) {
			const rare = 20
			par := Defaults()
			par.Interleaving = tt.interleaving
			w := pair(t, par)
			w.checked = true
			h := w.hosts[0]
			w.lost = func(int, Packet) bool { return true }
			bulk := 0
			for blocked := 0; blocked < tt.streams; bulk++ {
				blocked = 0
				for i := range tt.streams {
					err := h.a.Send(Message{Stream: uint16(1 + i), User: fmt.Appendf(nil, "%0*d", tt.size, 0)}, w.now, &h.out)
					h.flush()
					if err == ErrBlocked {
						blocked++
					} else if err != nil {
						t.Fatal(err)
					}
				}
			}
			if least := par.SendBuffer * 3 / 4; h.a.queued < least {
				t.Errorf("%d octets fill the buffer, want %d", h.a.queued, least)
			}
			out := h.a.sent.length
			for i := range rare {
				if err := h.a.Send(Message{User: fmt.Appendf(nil, "rare %0100d", i)}, w.now, &h.out); err != nil {
					t.Fatalf("message %d beside %d octets: %v", i, h.a.queued, err)
				}
				h.flush()
			}
			if h.a.queued > par.SendBuffer {
				t.Errorf("%d octets are in a buffer of %d", h.a.queued, par.SendBuffer)
			}
			w.lost = nil
			w.run(w.hosts[0].a.current.rto * 8)
			for i := range rare {
				at := slices.Index(w.hosts[1].got, fmt.Sprintf("0:rare %0100d", i))
				if most := out + i + (1+i/10)*tt.waiting; at < 0 || at > most {
					t.Errorf("rare message %d is number %d at the peer, want at most %d", i, at, most)
				}
			}
			if n := slices.IndexFunc(w.hosts[1].got, func(m string) bool { return strings.HasPrefix(m, "0:") }); n < 0 {
				t.Error("none has come")
			}
		})
	}
}

// TestBufferIsFilled takes a message of the buffer's size when nothing waits, and none that is larger.
func TestBufferIsFilled(t *testing.T) {
	par := quiet()
	w := pair(t, par)
	h := w.hosts[0]
	if err := h.a.Send(Message{User: make([]byte, par.SendBuffer+1)}, w.now, &h.out); err != ErrTooLarge {
		t.Errorf("a message that is too large: %v", err)
	}
	for _, want := range []error{nil, ErrBlocked} {
		if err := h.a.Send(Message{User: make([]byte, par.SendBuffer)}, w.now, &h.out); err != want {
			t.Errorf("a message of the buffer's size: %v, want %v", err, want)
		}
		h.flush()
	}
	w.run(w.hosts[0].a.current.rto * 8)
	if !h.saw(Writable) || h.a.queued > 0 {
		t.Errorf("%d octets are left", h.a.queued)
	}
	if err := h.a.Send(Message{User: make([]byte, par.SendBuffer)}, w.now, &h.out); err != nil {
		t.Error(err)
	}
}
