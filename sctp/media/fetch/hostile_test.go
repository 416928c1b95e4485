// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/sctp"
	"github.com/isthmus-net/isthmus/sctp/media/transfer"
)

// control is where control goes.
const control = transfer.ControlStream

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
	} {
		t.Run(tt.what, func(t *testing.T) {
			c, err := Dial(t.Context(), Config{Network: "sctp4+udp", Local: "127.0.0.1:0", Parameters: sctp.Defaults()}, serve(t, tt.list))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Abort()
			var b bytes.Buffer
			_, err = c.Get(t.Context(), Options{Request: transfer.Request{Name: "film"}, Output: &b})
			if !errors.Is(err, tt.want) || tt.want == nil && !bytes.Equal(b.Bytes(), media) {
				t.Errorf("%d octets, error %v, want %v", b.Len(), err, tt.want)
			}
		})
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
