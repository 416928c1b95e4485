// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/config"
	translator "github.com/isthmus-net/isthmus/translate/run"
)

// translating has a translator of each kind.
func translating() *config.Config {
	c := config.Default()
	c.Control.Socket = ""
	n, s := config.DefaultNAT64(), config.DefaultSIIT()
	n.Clients = []netip.Prefix{netip.MustParsePrefix("2001:db8:1::/48")}
	n.Pool4 = []config.PoolRange{{Prefix: netip.MustParsePrefix("192.0.2.10/32"), Transports: config.AllTransports, First: 1024, Last: 65535}}
	s.Pool6 = []netip.Prefix{netip.MustParsePrefix("2001:db8:64::/96")}
	c.NAT64s, c.SIITs = []config.NAT64{n}, []config.SIIT{s}
	return &c
}

// TestExamineTranslators has each finding about them.
func TestExamineTranslators(t *testing.T) {
	for _, tt := range []struct {
		name    string
		bend    func(*machine, *config.Config)
		want    string // part of the one finding; empty: none
		warning bool
	}{
		{name: "all there", bend: func(*machine, *config.Config) {}},
		{name: "route taken", bend: func(m *machine, _ *config.Config) {
			m.nat64 = func(config.NAT64) error { return errors.New("a route to 64:ff9b::/96 exists already") }
		}, want: "exists already"},
		{name: "device of another kind", bend: func(m *machine, _ *config.Config) {
			m.driver = func(name string) (string, bool) { return "veth", name == "siit" }
		}, want: "the interface siit exists already"},
		{name: "nothing passes", bend: func(m *machine, _ *config.Config) {
			m.passageSIIT = func(config.SIIT) translator.Passage { return translator.Passage{Closed: []string{"no route"}} }
		}, want: `siit "siit": no route (until then it will not work)`},
		{name: "not all passes", bend: func(m *machine, _ *config.Config) {
			m.passageNAT64 = func(config.NAT64) translator.Passage { return translator.Passage{Narrow: []string{"a firewall"}} }
		}, want: `nat64 "nat64": a firewall`, warning: true},
		{name: "advice", bend: func(_ *machine, c *config.Config) { c.NAT64s[0].UDPTimeout = time.Second }, want: `nat64 "nat64": The timer of UDP sessions is 1s`, warning: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, c := good(t), translating()
			tt.bend(&m, c)
			found := append(m.examine(nil, c), m.passages(c)...)
			if tt.want == "" {
				if len(found) > 0 {
					t.Errorf("found %+v", found)
				}
				return
			}
			if len(found) != 1 || !strings.Contains(found[0].Text, tt.want) || found[0].Warning != tt.warning {
				t.Errorf("found %+v, want one with %q", found, tt.want)
			}
		})
	}
}

// hesitant is an instance that refuses when it is asked beforehand.
type hesitant struct {
	*reloadable
	refuses error
}

func (h *hesitant) Verify(*config.Config) error { return h.refuses }

// TestVerifyFirst has one instance refuse: another, which would take the file, keeps what
// it has.
func TestVerifyFirst(t *testing.T) {
	willing := &reloadable{fake: newFake("client", "willing"), applied: client("willing", 1)}
	unwilling := &hesitant{reloadable: &reloadable{fake: newFake("client", "unwilling"), applied: client("unwilling", 1)}, refuses: errBroken}
	start, next := quiet(), quiet()
	start.Clients = []config.Client{client("willing", 1), client("unwilling", 1)}
	next.Clients = []config.Client{client("willing", 2), client("unwilling", 2)}
	r := startRig(t, start, func() (*config.Config, error) { return next, nil }, willing, unwilling)
	defer func() { r.stop(); <-r.done }()
	_, err := r.Daemon.Reload()
	if !errors.Is(err, errBroken) || !strings.Contains(err.Error(), "nothing was changed") || willing.applied.Port != 1 {
		t.Errorf("error %v, port %d", err, willing.applied.Port)
	}
	unwilling.refuses = nil
	if _, err := r.Daemon.Reload(); err != nil || willing.applied.Port != 2 {
		t.Errorf("error %v, port %d", err, willing.applied.Port)
	}
}
