// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/sip/aka"
	"github.com/isthmus-net/isthmus/sip/media/g711"
	"github.com/isthmus-net/isthmus/sip/media/wav"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/ua"
	"github.com/isthmus-net/isthmus/sip/ua/agent"
)

// A telephone says what a daemon of its host tells of an address, by the control socket.
func TestTelephoneHearsOfAddresses(t *testing.T) {
	a, err := agent.New(agent.Settings{
		UA:   ua.Settings{AOR: message.URI{Scheme: "sip", User: "alice", Host: "example.com"}},
		Port: 15078, Interfaces: []string{"lo"},
	})
	if err != nil {
		t.Fatal(err)
	}
	lines, written := io.Pipe()
	orders, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- (&agent.Console{Agent: a, In: orders, Out: written}).Run(t.Context())
		_ = written.Close()
	}()
	go followAddresses(t.Context(), control.NewClient(serveTold(t)), a.AddressChanged)
	const want = "address 2001:0:c000:201::1 of teredo on standby: qualified"
	heard := false
	for out := bufio.NewScanner(lines); out.Scan(); {
		if !heard && strings.Contains(out.Text(), want) {
			heard = true
			go func() { _, _ = io.WriteString(in, "quit\n") }()
		}
	}
	if err := <-ended; err != nil || !heard {
		t.Errorf("heard %v, error %v", heard, err)
	}
}

// TestSIPSubscribers has a telephone prove itself by what a file of subscribers has for its address.
func TestSIPSubscribers(t *testing.T) {
	// Set 1 of TS 35.208.
	k := aka.Key{0x46, 0x5b, 0x5c, 0xe8, 0xb1, 0x99, 0xb4, 0x9f, 0xaa, 0x5f, 0x0a, 0x2e, 0xe2, 0x38, 0xa6, 0xbc}
	op := aka.Key{0xcd, 0xc2, 0x02, 0xd5, 0x12, 0x3e, 0x20, 0xf6, 0x2b, 0x6d, 0x67, 0x6a, 0xc7, 0x2c, 0xb3, 0x18}
	challenge := aka.NewMilenage(k, aka.DeriveOPc(k, op)).Vector([16]byte{1}, 1<<5, aka.AMF{})
	file := filepath.Join(t.TempDir(), "subscribers.toml")
	const text = `
[[subscriber]]
private_id = "alice@ims.example"
public_ids = ["sip:alice@ims.example"]
k = "465b5ce8b199b49faa5f0a2ee238a6bc"
opc = "cd63cb71954a9f4e48a5994e37a02baf"
[[subscriber]]
private_id = "olga@ims.example"
public_ids = ["sip:olga@ims.example"]
k = "465b5ce8b199b49faa5f0a2ee238a6bc"
op = "cdc202d5123e20f62b6d676ac72cb318"
[[subscriber]]
private_id = "bob"
public_ids = ["sip:robert@ims.example"]
password = "secret"
[[subscriber]]
private_id = "carol"
public_ids = ["sip:carol@ims.example"]
ha1 = "0123456789abcdef0123456789abcdef"
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		address, username, password string
		sim                         bool
		problem                     string
	}{
		{address: "sip:alice@ims.example", username: "alice@ims.example", sim: true},
		{address: "sip:olga@ims.example", username: "olga@ims.example", sim: true},
		{address: "sip:robert@ims.example", username: "bob", password: "secret"},
		{address: "sip:carol@ims.example", problem: "a digest alone"},
		{address: "sip:dave@ims.example", problem: "names nobody with the address sip:dave@ims.example"},
	} {
		t.Run(tt.address, func(t *testing.T) {
			set, _, err := (&SIPUACmd{Address: tt.address, Subscribers: file}).settings()
			if tt.problem != "" {
				if err == nil || !strings.Contains(err.Error(), tt.problem) {
					t.Errorf("the error is %v, want one with %q", err, tt.problem)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if set.UA.Username != tt.username || set.UA.Password != tt.password {
				t.Errorf("%q proves itself by %q", set.UA.Username, set.UA.Password)
			}
			if (set.UA.SIM != nil) != tt.sim {
				t.Fatalf("a SIM: %t", set.UA.SIM != nil)
			}
			if tt.sim {
				if a, ok := set.UA.SIM.Milenage.Answer(challenge.RAND, challenge.AUTN); !ok || a.RES != challenge.XRES {
					t.Error("the SIM has other keys")
				}
			}
		})
	}
}

// A recording is complete when its call has ended, and the others when the telephone has.
func TestRecordings(t *testing.T) {
	dir := t.TempDir()
	s := &sounds{record: filepath.Join(dir, "heard.wav"), files: map[*recording]bool{}}
	for _, name := range []string{"heard.wav", "heard-2.wav"} {
		_, sink := s.next()
		sink.(*recording).Write(0, g711.PCMU, make([]byte, 160))
		if name == "heard.wav" {
			_ = sink.(io.Closer).Close()
		} else if err := s.close(); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := wav.Decode(b); err != nil || got.Len() != 160 {
			t.Errorf("%s has %d samples, %v", name, got.Len(), err)
		}
	}
	if len(s.files) != 0 {
		t.Errorf("%d files are open", len(s.files))
	}
}
