// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/sip/media"
	"github.com/isthmus-net/isthmus/sip/media/wav"
	"github.com/isthmus-net/isthmus/sip/ua"
)

// closing tells how it was closed.
type closing struct {
	*wav.Recorder
	closed chan error
}

func (c *closing) Close() error {
	err := c.Recorder.Close()
	c.closed <- err
	return err
}

// TestFileArrives plays a file to another agent by way of the proxy: what that records is the file,
// from its first sample on.
func TestFileArrives(t *testing.T) {
	t.Parallel()
	n := newNet3(t, plan6)
	n.serve(t, plan6)
	const frames = 25
	sent, err := wav.Decode(wav.Append(nil, wav.MuLaw, noise(3, frames).Data))
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "heard.wav"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	recorder := &closing{wav.NewRecorder(file, wav.MuLaw, frames*media.Samples), make(chan error, 2)}
	bob := n.register(t, n.peer, plan6, "bob", func() (media.Source, media.Sink) { return nil, recorder })
	alice := n.register(t, n.mobile, plan6, "alice", func() (media.Source, media.Sink) { return sent, nil })
	id, err := alice.Call(t.Context(), "sip:bob@"+domain)
	if err != nil {
		t.Fatal(err)
	}
	await(t, alice, ua.Established)
	await(t, bob, ua.Established)
	heard(t, bob, frames+5)
	state, err := alice.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := alice.HangUp(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	await(t, bob, ua.Ended)
	select { // while the agent runs
	case err := <-recorder.closed:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(testutil.Patience):
		t.Fatal("the recorder is not closed")
	}
	b, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	got, err := wav.Decode(b)
	if err != nil || got.Len() != sent.Len() {
		t.Fatalf("%d samples of %d, %v", got.Len(), sent.Len(), err)
	}
	missing := uint64(0)
	silent := bytes.Repeat([]byte{0xff}, media.Samples)
	for at := 0; at < got.Len(); at += media.Samples {
		frame, want := got.Data[at:at+media.Samples], sent.Data[at:at+media.Samples]
		if bytes.Equal(frame, silent) {
			missing++
		} else if !bytes.Equal(frame, want) {
			t.Errorf("the samples from %d on are others", at)
		}
	}
	if skipped := state.Calls[0].Media.Skipped; missing > skipped {
		t.Errorf("%d frames are missing, %d were left out on a busy host", missing, skipped)
	}
}
