// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package portmap

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// outcome is what a keeper reports.
type outcome struct {
	Mapping Mapping
	Err     string
}

// keeper makes a keeper that reports into a channel and logs into a text.
func keeper(t *testing.T, methods []Method) (k *Keeper, reports chan outcome, log *strings.Builder) {
	t.Helper()
	reports, log = make(chan outcome, 100), &strings.Builder{}
	k = &Keeper{
		Methods: methods, File: filepath.Join(t.TempDir(), "port"), Log: slog.New(slog.NewTextHandler(log, nil)),
		Report: func(m Mapping, err error) {
			o := outcome{Mapping: m}
			if err != nil {
				o.Err = err.Error()
			}
			reports <- o
		},
	}
	return k, reports, log
}

// next waits for the next report.
func next(t *testing.T, reports chan outcome) outcome {
	t.Helper()
	select {
	case o := <-reports:
		return o
	case <-time.After(10 * testutil.Patience):
		t.Fatal("nothing was reported")
		return outcome{}
	}
}

func text(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func wantCalls(t *testing.T, g *fakeGateway, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, g.calls()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// A port is reserved, moved to another gateway with the host, and given back.
func TestKeeper(t *testing.T) {
	t.Parallel()
	first, second := newGateway(t).withUPnP(), newGateway(t).withNATPMP()
	second.time.preference = 0 // it does not speak UPnP
	k, reports, log := keeper(t, both)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	targets, ended := make(chan Target), make(chan struct{})
	go func() { defer close(ended); k.Run(ctx, targets) }()

	targets <- first.target()
	if o := next(t, reports); o.Mapping != (Mapping{UPnP, mapped, 0}) {
		t.Errorf("reported %+v", o)
	}
	wantCalls(t, first, addCall, ipCall)
	if got, want := text(t, k.File), `{"method":"upnp","gateway":"`+first.addr.String()+`","port":3551}`+"\n"; got != want {
		t.Errorf("remembered %q, want %q", got, want)
	}
	targets <- first.target() // nothing new

	targets <- second.target()
	if o := next(t, reports); o.Mapping.Method != NATPMP || o.Mapping.External != mapped {
		t.Errorf("reported %+v", o)
	}
	wantCalls(t, first, deleteCall)
	wantCalls(t, second, "map 3551 for 7200 s", "address")

	targets <- Target{}
	if o := next(t, reports); o.Err != ErrNoGateway.Error() {
		t.Errorf("reported %+v", o)
	}
	wantCalls(t, second, "unmap 3551")
	targets <- second.target()
	next(t, reports)
	wantCalls(t, second, "map 3551 for 7200 s", "address")

	cancel()
	<-ended
	wantCalls(t, second, "unmap 3551")
	if got := text(t, k.File); got != "" || log.Len() > 0 || len(reports) > 0 {
		t.Errorf("left behind %q, log %q, %d reports", got, log, len(reports))
	}
}

// After a crash the next run gives back what the last one had reserved.
func TestKeeperAfterCrash(t *testing.T) {
	for _, tt := range []struct {
		name, file string
		calls      []string
		log        string
	}{
		{"reserved at this gateway", `{"method":"upnp","gateway":"GATEWAY","port":4444}`, []string{deleteOld, addCall, ipCall}, ""},
		{"reserved at another gateway", `{"method":"upnp","gateway":"192.0.2.1","port":4444}`, []string{addCall, ipCall}, ""},
		{"reserved by another method", `{"method":"nat-pmp","gateway":"GATEWAY","port":4444}`, []string{addCall, ipCall}, ""},
		{"file damaged", `{"method":"up`, []string{addCall, ipCall}, "is damaged"},
		{"file with a wrong port", `{"method":"upnp","gateway":"GATEWAY","port":70000}`, []string{addCall, ipCall}, "is damaged"},
		{"file too large", strings.Repeat(" ", maxRecord) + `{"method":"upnp","gateway":"GATEWAY","port":4444}`, []string{addCall, ipCall}, "is damaged"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t).withUPnP()
			k, reports, log := keeper(t, upnpOnly)
			if err := os.WriteFile(k.File, []byte(strings.Replace(tt.file, "GATEWAY", g.addr.String(), 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			s := keeping{Keeper: k, target: g.target()}
			if wait := s.attempt(t.Context()); wait != refreshEvery {
				t.Errorf("again after %v", wait)
			}
			if o := next(t, reports); o.Mapping.External != mapped {
				t.Errorf("reported %+v", o)
			}
			wantCalls(t, g, tt.calls...)
			if !strings.Contains(log.String(), tt.log) {
				t.Errorf("log %q, want %q", log, tt.log)
			}
		})
	}
}

func TestKeeperRenews(t *testing.T) {
	t.Parallel()
	g := newGateway(t).withNATPMP()
	k, reports, _ := keeper(t, natpmpOnly)
	s := keeping{Keeper: k, target: g.target()}
	if wait := s.attempt(t.Context()); wait != time.Hour {
		t.Errorf("renewed after %v, want half of the lease", wait)
	}
	next(t, reports)
	s.attempt(t.Context())
	wantCalls(t, g, "map 3551 for 7200 s", "address", "map 3551 for 7200 s", "address")
	if len(reports) > 0 {
		t.Errorf("reported although nothing changed: %+v", <-reports)
	}
}

// A gateway that gets another address is reported; one that goes is reported too,
// and tried again after waits that double.
func TestKeeperGatewayChanges(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	refuse := make(chan bool, 100)
	g.soap = func(w http.ResponseWriter, action string) {
		select {
		case <-refuse:
			fault(w, 501)
		default:
			g.answer(w, action)
		}
	}
	g.withUPnP()
	k, reports, _ := keeper(t, upnpOnly)
	s := keeping{Keeper: k, target: g.target()}
	s.attempt(t.Context())
	next(t, reports)
	s.mapping.External = netip.MustParseAddrPort("198.51.100.1:3551") // as it was before
	s.attempt(t.Context())
	if o := next(t, reports); o.Mapping.External != mapped {
		t.Errorf("reported %+v", o)
	}
	for i, want := range []time.Duration{firstRetry, 2 * firstRetry, 4 * firstRetry} {
		for range 3 {
			refuse <- true
		}
		if got := s.attempt(t.Context()); got != want {
			t.Errorf("try %d: again after %v, want %v", i, got, want)
		}
		if o := next(t, reports); o.Mapping != (Mapping{}) || !strings.Contains(o.Err, "upnp error 501") {
			t.Errorf("reported %+v", o)
		}
		for len(refuse) > 0 {
			<-refuse
		}
	}
	s.retry = lastRetry
	refuse <- true
	refuse <- true
	if got := s.attempt(t.Context()); got != lastRetry {
		t.Errorf("again after %v, want no more than %v", got, lastRetry)
	}
}

// What cannot be given back stays remembered, and the end does not wait until it can.
func TestKeeperCannotRelease(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	g.time.release = 100 * time.Millisecond
	silent := make(chan struct{})
	g.soap = func(w http.ResponseWriter, action string) {
		if action == "DeletePortMapping" {
			<-silent
			return
		}
		g.answer(w, action)
	}
	g.withUPnP()
	t.Cleanup(func() { close(silent) })
	k, reports, log := keeper(t, upnpOnly)
	s := keeping{Keeper: k, target: g.target()}
	s.attempt(t.Context())
	next(t, reports)
	s.release()
	if text(t, k.File) == "" || !strings.Contains(log.String(), "cannot give the reserved port back") {
		t.Errorf("remembered %q, log %q", text(t, k.File), log)
	}
}

func TestKeeperCannotRemember(t *testing.T) {
	t.Parallel()
	g := newGateway(t).withUPnP()
	k, reports, log := keeper(t, upnpOnly)
	k.File = filepath.Join(t.TempDir(), "none", "port")
	s := keeping{Keeper: k, target: g.target()}
	s.attempt(t.Context())
	if o := next(t, reports); o.Mapping.External != mapped || !strings.Contains(log.String(), "after a crash it stays reserved") {
		t.Errorf("reported %+v, log %q", o, log)
	}
}
