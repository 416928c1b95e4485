// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/internal/event"
	"github.com/isthmus-net/isthmus/internal/loop"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/internal/subscriber"
	"github.com/isthmus-net/isthmus/sip/aka"
	"github.com/isthmus-net/isthmus/sip/media"
	"github.com/isthmus-net/isthmus/sip/media/g711"
	"github.com/isthmus-net/isthmus/sip/media/wav"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/ua"
	"github.com/isthmus-net/isthmus/sip/ua/agent"
)

// SIPCmd groups what speaks SIP in the foreground.
type SIPCmd struct {
	UA SIPUACmd `cmd:"" name:"ua" help:"Be a telephone that keeps its calls while this host moves, until quit or SIGINT."`
}

// SIPUACmd is `isthmus sip ua`.
type SIPUACmd struct {
	SocketFlag
	Address     string        `arg:"" help:"Address of record, such as sip:alice@example.com."`
	Call        string        `placeholder:"ADDRESS" help:"Call at once."`
	Answer      bool          `help:"Take every call."`
	Proxy       string        `placeholder:"ADDRESS" help:"Where requests go first, such as sip:[2001:db8::5]."`
	Register    time.Duration `default:"0s" help:"Register for so long, again and again; 0s is not at all (${default})."`
	Username    string        `help:"Name for authentication, if it is not that of the address."`
	Password    string        `env:"ISTHMUS_SIP_PASSWORD" help:"Password; better in the environment, where other users do not see it (${env})."`
	Subscribers string        `type:"existingfile" placeholder:"FILE" help:"File of subscribers, as a registrar has it, in which this address proves itself by k and opc (AKA) or a password."`
	Instance    string        `placeholder:"URN" help:"Name of this device over restarts, such as urn:uuid:…."`
	Port        uint16        `default:"5060" help:"SIP's port on every address (${default})."`
	Interface   []string      `placeholder:"NAME" help:"Interfaces whose addresses are used; all but the loopback if none is named."`
	Play        string        `type:"existingfile" placeholder:"FILE" help:"Send a WAV file of 8000 Hz, again and again."`
	Tone        float64       `placeholder:"HZ" help:"Send a tone."`
	Record      string        `placeholder:"FILE" help:"Write what is heard to a WAV file; a number is added from the second call on."`
	SRTP        bool          `name:"srtp" help:"Demand SRTP with keys in SDP (RFC 4568)."`
	NoLatch     bool          `help:"Send media only to where the peer says, not to where its media come from."`
	Repeat      time.Duration `placeholder:"TIME" help:"Repeat a request first after this time, if it is shorter than 500ms; for closed networks alone (RFC 3261 section 17.1.1.2)."`
}

// longestRecord bounds a recording.
const longestRecord = 4 * 3600 * g711.Rate

// Run is the telephone.
func (c *SIPUACmd) Run(ctx context.Context, to streams) error {
	set, files, err := c.settings()
	if err != nil {
		return role.UsageError{Err: err}
	}
	loop.Hurry() // a move waits for a few of its threads in turn
	a, err := agent.New(set)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if daemon, err := c.client(); err == nil {
		go followAddresses(ctx, daemon, a.AddressChanged)
	}
	console := agent.Console{Agent: a, In: os.Stdin, Out: to.out, Live: onTerminal(to.out), Call: c.Call}
	return errors.Join(console.Run(ctx), files.close())
}

// askAgain is when a daemon is asked again that is not there, or has gone.
const askAgain = 5 * time.Second

// followAddresses passes on what a daemon of this host, such as one with a Teredo client, says of
// the host's addresses, while there is one that this user may ask. Without it the telephone sees
// the addresses all the same, and not why they come and go.
func followAddresses(ctx context.Context, daemon *control.Client, tell func(event.AddressChange)) {
	for ctx.Err() == nil {
		_ = daemon.Addresses(ctx, tell)
		select {
		case <-ctx.Done():
		case <-time.After(askAgain):
		}
	}
}

// settings reads the flags.
func (c *SIPUACmd) settings() (agent.Settings, *sounds, error) {
	set := agent.Settings{Port: c.Port, Interfaces: c.Interface, AutoAnswer: c.Answer, Latch: !c.NoLatch, Secure: c.SRTP}
	set.UA = ua.Settings{
		Username: c.Username, Password: c.Password, Register: c.Register, Instance: c.Instance,
		UserAgent: "isthmus", FirstRepeat: c.Repeat,
	}
	var err error
	if set.UA.AOR, err = message.ParseURI(c.Address); err != nil || set.UA.AOR.User == "" {
		return set, nil, fmt.Errorf("%q is no address of record: write one such as sip:alice@example.com", c.Address)
	}
	if c.Proxy != "" {
		if set.UA.Proxy, err = message.ParseURI(c.Proxy); err != nil || set.UA.Proxy.Host == "" {
			return set, nil, fmt.Errorf("--proxy %q is no address: write one such as sip:[2001:db8::5]", c.Proxy)
		}
	}
	if c.Subscribers != "" {
		if err := c.prove(&set.UA); err != nil {
			return set, nil, err
		}
	}
	if c.Play != "" && c.Tone != 0 {
		return set, nil, errors.New("--play and --tone are two sources: write one of them")
	}
	s := &sounds{record: c.Record, source: media.Silence{}, files: map[*recording]bool{}}
	switch {
	case c.Tone != 0:
		s.source = media.Tone(c.Tone)
	case c.Play != "":
		b, err := os.ReadFile(c.Play)
		if err != nil {
			return set, nil, err
		}
		sound, err := wav.Decode(b)
		if err != nil {
			return set, nil, fmt.Errorf("--play %s: %w", c.Play, err)
		}
		s.source = sound
	}
	set.Sound = s.next
	return set, s, nil
}

// prove takes name and secret from a file of subscribers: as a card has them, or a password.
func (c *SIPUACmd) prove(set *ua.Settings) error {
	file, err := subscriber.Read(c.Subscribers)
	if err != nil {
		return err
	}
	s := file.ByPublicID(set.AOR.String())
	switch {
	case s == nil:
		return fmt.Errorf("%s names nobody with the address %s: add it to public_ids", c.Subscribers, set.AOR.String())
	case s.HasAKA():
		set.SIM = &ua.SIM{Milenage: aka.MilenageOf(aka.Key(*s.K), (*aka.Key)(s.OP), (*aka.Key)(s.OPc))}
	case s.Password == "":
		return fmt.Errorf("%s has the password of %s as a digest alone, and a telephone needs it itself: write password", c.Subscribers, set.AOR.String())
	}
	set.Username, set.Password = cmp.Or(set.Username, s.PrivateID), cmp.Or(set.Password, string(s.Password))
	return nil
}

// sounds are what calls send and hear.
type sounds struct {
	source media.Source
	record string
	calls  int
	mu     sync.Mutex // guards what follows
	files  map[*recording]bool
	failed error
}

// recording is the file of a call. It is complete when the call has ended, not when the telephone has.
type recording struct {
	*wav.Recorder
	file *os.File
	of   *sounds
}

// Close completes the file, once.
func (r *recording) Close() error {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	if r.of.files[r] {
		delete(r.of.files, r)
		r.of.failed = errors.Join(r.of.failed, r.Recorder.Close(), r.file.Close())
	}
	return nil // [sounds.close] tells
}

// next is for the next call.
func (s *sounds) next() (media.Source, media.Sink) {
	s.calls++
	if s.record == "" {
		return s.source, nil
	}
	name := s.record
	if s.calls > 1 {
		base, _ := strings.CutSuffix(name, ".wav")
		name = fmt.Sprintf("%s-%d.wav", base, s.calls)
	}
	file, err := os.Create(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.failed = errors.Join(s.failed, err)
		return s.source, nil
	}
	r := &recording{wav.NewRecorder(file, wav.Linear, longestRecord), file, s}
	s.files[r] = true
	return s.source, r
}

// close completes the files of calls that no one has ended, and tells what has failed.
func (s *sounds) close() error {
	s.mu.Lock()
	left := slices.Collect(maps.Keys(s.files))
	s.mu.Unlock()
	for _, r := range left {
		_ = r.Close()
	}
	return s.failed
}
