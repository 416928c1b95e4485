// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp"
	"github.com/isthmus-net/isthmus/sctp/media/measure"
	"github.com/isthmus-net/isthmus/sctp/media/transfer"
)

// control is where control goes.
const control = transfer.ControlStream

// limit is how many octets are asked for.
const limit = 100

// said is a message of a server, by a stream.
type said struct {
	stream uint16
	m      transfer.Message
}

// serve answers one client with messages, whatever it asks for.
func serve(t *testing.T, list []said) (at string) {
	t.Helper()
	l, err := (&sctp.Config{UDPPort: sctp.AnyPort}).Listen(t.Context(), "sctp4+udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		c, err := l.AcceptSCTP(context.Background())
		if err != nil {
			return
		}
		b := make([]byte, transfer.MaxControl)
		if _, _, err := c.ReadMessage(b); err != nil {
			return
		}
		for _, s := range list {
			_ = c.WriteMessage(s.m.Append(nil), sctp.Message{Stream: s.stream, PPID: transfer.PPID})
		}
		for err == nil {
			_, _, err = c.ReadMessage(b)
		}
		_ = c.Close()
	}()
	return l.Addr().String()
}

// TestServersThatLie: what does not fit together is an error, and nothing is taken for whole that is not.
func TestServersThatLie(t *testing.T) {
	media := []byte("octets of the media")
	answer := &transfer.Answer{Transfer: 1, Streams: 2, Size: 100, Total: uint64(len(media))}
	data := &transfer.Data{Transfer: 1, Written: time.Now(), Media: media}
	end := &transfer.End{Transfer: 1, Octets: uint64(len(media)), Messages: 1, Digest: sha256.Sum256(media)}
	for _, tt := range []struct {
		what string
		list []said
		want error // nil: all is well
	}{
		{"the truth", []said{{control, answer}, {1, data}, {control, end}}, nil},
		{"data before the answer", []said{{1, data}, {control, answer}, {control, end}}, nil},
		{"the end before data", []said{{control, answer}, {control, end}, {1, data}}, nil},
		{"data of another transfer", []said{{control, answer}, {1, &transfer.Data{Transfer: 9, Written: time.Now(), Media: media}}, {1, data}, {control, end}}, nil},
		{"another digest", []said{{control, answer}, {1, data}, {control, &transfer.End{Transfer: 1, Octets: end.Octets}}}, ErrDigest},
		{"data twice", []said{{control, answer}, {1, data}, {2, data}}, transfer.ErrMessage},
		{"two answers", []said{{control, answer}, {control, answer}}, transfer.ErrMessage},
		{"data by the stream of control", []said{{control, answer}, {control, data}}, errStream},
		{"control by a stream of data", []said{{1, answer}}, errStream},
		{"a message for servers", []said{{control, &transfer.Cancel{Transfer: 1}}}, transfer.ErrMessage},
		{"a refusal", []said{{control, &transfer.Answer{Transfer: 1, Status: transfer.NotFound}}}, ErrRefused},
		{"more data than in the answer", []said{{control, &transfer.Answer{Transfer: 1, Streams: 1, Size: 1, Total: 5}}, {1, data}}, errSize},
		{"more data than in the answer that follows", []said{{1, data}, {control, &transfer.Answer{Transfer: 1, Streams: 1, Size: 1, Total: 5}}}, errSize},
		{"data far behind the end", []said{{control, answer}, {1, &transfer.Data{Transfer: 1, Offset: 1 << 40, Written: time.Now(), Media: media}}}, errSize},
		{"more than was asked for", []said{{control, &transfer.Answer{Transfer: 1, Streams: 1, Size: 1, Total: limit + 1}}}, errSize},
		{"an end that is another than the answer's", []said{{control, answer}, {1, data}, {control, &transfer.End{Transfer: 1}}}, errSize},
		{"the end of what was not begun", []said{{control, end}}, transfer.ErrMessage},
	} {
		t.Run(tt.what, func(t *testing.T) {
			c, err := Dial(t.Context(), Config{Network: "sctp4+udp", Local: "127.0.0.1:0", Parameters: sctp.Defaults()}, serve(t, tt.list))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Abort()
			var b bytes.Buffer
			_, err = c.Get(t.Context(), Options{Request: transfer.Request{Name: "film", Limit: limit}, Output: &b})
			if !errors.Is(err, tt.want) || tt.want == nil && !bytes.Equal(b.Bytes(), media) {
				t.Errorf("%d octets, error %v, want %v", b.Len(), err, tt.want)
			}
		})
	}
}

// TestRefusal: a refusal has the server's own words, which steer no terminal; without any, those of its status.
func TestRefusal(t *testing.T) {
	for text, want := range map[string]string{
		"":                          ": " + transfer.Refused.String(),
		"take two streams":          ": take two streams",
		"\x1b[2Jall \u202eis\nwell": ": [2Jall iswell",
		"\x1b\n":                    ": " + transfer.Refused.String(),
	} {
		at := serve(t, []said{{control, &transfer.Answer{Transfer: 1, Status: transfer.Refused, Text: text}}})
		c, err := Dial(t.Context(), Config{Network: "sctp4+udp", Local: "127.0.0.1:0", Parameters: sctp.Defaults()}, at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Abort()
		_, err = c.Get(t.Context(), Options{Request: transfer.Request{Name: "film"}})
		if !errors.Is(err, ErrRefused) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestLateAnswer: a transfer whose data overtake the answer has begun with them.
func TestLateAnswer(t *testing.T) {
	half := []byte("half of the media")
	whole := append(half, half...)
	list := []said{
		{1, &transfer.Data{Transfer: 1, Written: time.Now(), Media: half}},
		{1, &transfer.Data{Transfer: 1, Offset: uint64(len(half)), Written: time.Now(), Media: half}},
		{control, &transfer.Answer{Transfer: 1, Streams: 1, Size: 100, Total: uint64(len(whole))}},
		{control, &transfer.End{Transfer: 1, Octets: uint64(len(whole)), Messages: 2, Digest: sha256.Sum256(whole)}},
	}
	c, err := Dial(t.Context(), Config{Network: "sctp4+udp", Local: "127.0.0.1:0", Parameters: sctp.Defaults()}, serve(t, list))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Abort()
	if r, err := c.Get(t.Context(), Options{Request: transfer.Request{Name: "film"}}); err != nil || r.Duration <= 0 || r.Throughput <= 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestMessagesInParts: what is large in proportion to the receive buffer comes in parts, with those of other streams between
// them, and is put together.
func TestMessagesInParts(t *testing.T) {
	const pieces = 40
	media := make([]byte, transfer.MaxData)
	list := []said{{control, &transfer.Answer{Transfer: 1, Streams: 2, Size: transfer.MaxData, Total: pieces * transfer.MaxData}}}
	whole := sha256.New()
	for n := range pieces {
		_, _ = whole.Write(media)
		list = append(list, said{1 + uint16(n%2), &transfer.Data{Transfer: 1, Offset: uint64(n) * transfer.MaxData, Written: time.Now(), Media: media}})
	}
	list = append(list, said{control, &transfer.End{Transfer: 1, Octets: pieces * transfer.MaxData, Messages: pieces, Digest: [transfer.DigestSize]byte(whole.Sum(nil))}})
	par := sctp.Defaults()
	par.ReceiveBuffer = 64 << 10
	c, err := Dial(t.Context(), Config{Network: "sctp4+udp", Local: "127.0.0.1:0", Parameters: par}, serve(t, list))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Abort()
	if r, err := c.Get(t.Context(), Options{Request: transfer.Request{Name: "film"}}); err != nil || r.Octets != pieces*transfer.MaxData || r.Messages != pieces || c.held != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestJoinIsBounded: parts that do not fit together, or have no end, are not kept.
func TestJoinIsBounded(t *testing.T) {
	part := func(stream uint16, first, last bool) sctp.MessageInfo {
		return sctp.MessageInfo{Stream: stream, PPID: transfer.PPID, First: first, Last: last}
	}
	b := make([]byte, transfer.MaxData/2)
	for _, tt := range []struct {
		what string
		list []sctp.MessageInfo
	}{
		{"the middle", []sctp.MessageInfo{part(1, false, false)}},
		{"two beginnings", []sctp.MessageInfo{part(1, true, false), part(1, true, false)}},
		{"a message without an end", []sctp.MessageInfo{part(1, true, false), part(1, false, false), part(1, false, false)}},
		{"one that is not ordered", []sctp.MessageInfo{{Stream: 1, PPID: transfer.PPID, First: true, Last: true, Unordered: true}}},
		{"one of another protocol", []sctp.MessageInfo{{Stream: 1, First: true, Last: true}}},
	} {
		c := &Client{}
		for n, info := range tt.list {
			_, err := c.join(b, &info)
			if last := n == len(tt.list)-1; (err != nil) != last {
				t.Errorf("%s, part %d: %v", tt.what, n, err)
			}
		}
	}
	c := &Client{}
	for stream := uint16(0); ; stream++ {
		info := part(stream, true, false)
		if _, err := c.join(b, &info); err != nil {
			break
		} else if c.held > maxAhead {
			t.Fatalf("%d octets are kept", c.held)
		}
	}
}

// TestEndlessList: a server that always has more is not listened to for ever.
func TestEndlessList(t *testing.T) {
	var list []said
	for n := range maxListed/transfer.MaxEntries + 1 {
		e := &transfer.Entries{Transfer: uint16(n + 1), More: true}
		for k := range transfer.MaxEntries {
			e.List = append(e.List, transfer.Entry{Name: fmt.Sprintf("%08d", n*transfer.MaxEntries+k)})
		}
		list = append(list, said{control, e})
	}
	c, err := Dial(t.Context(), Config{Network: "sctp4+udp", Local: "127.0.0.1:0", Parameters: sctp.Defaults()}, serve(t, list))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Abort()
	if _, err := c.List(t.Context()); !errors.Is(err, errEndless) {
		t.Errorf("error %v", err)
	}
}

// TestReportsOfManyPaths: a server that has other paths in each report does not fill our memory.
func TestReportsOfManyPaths(t *testing.T) {
	w := &watch{rtos: map[measure.Path]time.Duration{}}
	for n := range uint32(100_000) {
		a := netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
		w.report(&transfer.Report{Paths: []transfer.PathReport{{Local: a, Remote: a, RTO: time.Second}}})
	}
	if len(w.rtos) > maxPaths {
		t.Errorf("%d paths are kept", len(w.rtos))
	}
}

// TestCancel: a transfer that the caller gives up ends.
func TestCancel(t *testing.T) {
	c, err := Dial(t.Context(), Config{Network: "sctp4+udp", Local: "127.0.0.1:0", Parameters: sctp.Defaults()},
		serve(t, []said{{control, &transfer.Answer{Transfer: 1, Streams: 1, Size: 1, Total: 1}}, {control, &transfer.End{Transfer: 1, Status: transfer.Cancelled}}}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Abort()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Get(ctx, Options{Request: transfer.Request{Name: "film"}}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
