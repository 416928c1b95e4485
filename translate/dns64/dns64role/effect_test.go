// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64role

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"
	"github.com/pelletier/go-toml/v2"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
)

// written makes settings of lines of a file, and of those of the rig for all other keys.
func written(t *testing.T, lines string) func(*Settings) {
	t.Helper()
	return func(c *Settings) {
		text := "[[dns64]]\n" + lines + "\n"
		var own map[string]any
		if err := toml.Unmarshal([]byte(lines), &own); err != nil {
			t.Fatal(err)
		}
		for k, value := range map[string]string{
			"listen": fmt.Sprintf("[%q]", c.Listen[0]), "upstreams": quoted(c.Upstreams), "clients": quoted(c.Clients), "prefixes": quoted(c.Prefixes),
		} {
			if _, there := own[k]; !there {
				text += k + " = " + value + "\n"
			}
		}
		*c = *configtest.One(t, Role.Section, text).(*Settings)
	}
}

func quoted[T fmt.Stringer](list []T) string {
	words := make([]string, len(list))
	for i, one := range list {
		words[i] = fmt.Sprintf("%q", one)
	}
	return "[" + strings.Join(words, ", ") + "]"
}

// TestKeysInAnswers sees in the answer to one question, of which the upstream has many
// records, what a key does.
func TestKeysInAnswers(t *testing.T) {
	answer := func(want ...string) func(*testing.T, *dns.Msg) {
		return func(t *testing.T, m *dns.Msg) {
			var got []string
			for _, rr := range m.Answer {
				got = append(got, strings.Fields(rr.String())[4])
			}
			if strings.Join(got, " ") != strings.Join(want, " ") {
				t.Errorf("the answer is %q, want %q", got, want)
			}
		}
	}
	life := func(most uint32) func(*testing.T, *dns.Msg) {
		return func(t *testing.T, m *dns.Msg) {
			for _, rr := range append(m.Answer, m.Ns...) {
				if rr.Header().Ttl > most {
					t.Errorf("%v lives longer than %d s", rr, most)
				}
			}
		}
	}
	const a, aaaa = "x. 500 IN A 198.51.100.7", "x. 500 IN AAAA 2001:db8:bad::1"
	for _, tt := range []struct {
		key, lines string
		records    []string
		question   string // "": the AAAA records of a host
		check      func(*testing.T, *dns.Msg)
	}{
		{configtest.InEffect(t, "dns64", "prefixes"), `prefixes = ["2001:db8:99::/96"]`, []string{a}, "", answer("2001:db8:99::c633:6407")},
		{configtest.InEffect(t, "dns64", "ranges"), `ranges = ["198.51.100.0/24 2001:db8:10::/96"]`, []string{a}, "", answer("2001:db8:10::c633:6407")},
		{configtest.InEffect(t, "dns64", "exclude"), `exclude = ["2001:db8:bad::/48"]`, []string{a, aaaa}, "", answer(made)},
		{configtest.InEffect(t, "dns64", "no_synthesis_for"), `no_synthesis_for = ["127.0.0.0/8"]`, []string{a}, "", answer()},
		{configtest.InEffect(t, "dns64", "ptr_name"), `ptr_name = "nat64.example.net"`, nil, "7.0.4.6.3.3.6.c.0.0.0.0.0.0.0.0.0.0.0.0.4.6.0.0.8.b.d.0.1.0.0.2.ip6.arpa.", answer("nat64.example.net.")},
		{configtest.InEffect(t, "dns64", "cache_max_ttl"), `cache_max_ttl = "60s"`, []string{aaaa}, "", life(60)},
		{configtest.InEffect(t, "dns64", "cache_negative_ttl"), `cache_negative_ttl = "5s"`, nil, "", life(5)},
		{configtest.InEffect(t, "dns64", "open"), "clients = [\"0.0.0.0/0\"]\nopen = true", []string{a}, "", answer(made)},
	} {
		t.Run(tt.key, func(t *testing.T) {
			r := serve(t, written(t, tt.lines), answering(t, netip.AddrPort{}, records(tt.records...)).at)
			tt.check(t, r.query(t, "udp", func(q *dns.Msg) {
				if tt.question != "" {
					q.SetQuestion(tt.question, dns.TypePTR)
				}
			}))
		})
	}
}

// TestKeysInQuestions sees in the questions to upstreams what a key does.
func TestKeysInQuestions(t *testing.T) {
	for _, tt := range []struct {
		key, lines string
		silent     bool // the upstream
		want       int64
	}{
		{"none", `upstream_timeout = "2s"`, false, 1},
		{configtest.InEffect(t, "dns64", "cache_entries"), `cache_entries = 0`, false, 2},
		{configtest.InEffect(t, "dns64", "cache_bytes"), `cache_bytes = 1`, false, 2},
		// An upstream that says nothing is asked twice, as long as there is time.
		{configtest.InEffect(t, "dns64", "upstream_timeout"), "upstream_timeout = \"100ms\"\nquery_timeout = \"1s\"", true, 2},
		{configtest.InEffect(t, "dns64", "query_timeout"), "upstream_timeout = \"100ms\"\nquery_timeout = \"100ms\"", true, 1},
	} {
		t.Run(tt.key, func(t *testing.T) {
			var asked atomic.Int64
			answer := records("x. 500 IN AAAA 2001:db8::1")
			u := answering(t, netip.AddrPort{}, func(w dns.ResponseWriter, q *dns.Msg) {
				if q.Question[0].Qtype == dns.TypeAAAA {
					asked.Add(1)
					if !tt.silent {
						answer(w, q)
					}
				}
			})
			r := serve(t, written(t, tt.lines), u.at)
			for range 2 {
				r.query(t, "udp", nil)
			}
			if got := asked.Load(); got != tt.want {
				t.Errorf("asked %d times, want %d", got, tt.want)
			}
		})
	}
}

// TestMixedCase sees capitals in the questions to upstreams.
func TestMixedCase(t *testing.T) {
	configtest.InEffect(t, "dns64", "mixed_case")
	var mixed atomic.Bool
	answer := records("x. 500 IN AAAA 2001:db8::1")
	u := answering(t, netip.AddrPort{}, func(w dns.ResponseWriter, q *dns.Msg) {
		if name := q.Question[0].Name; name != strings.ToLower(name) {
			mixed.Store(true)
		}
		answer(w, q)
	})
	r := serve(t, written(t, "mixed_case = true\ncache_entries = 0"), u.at)
	for range 8 { // 14 letters each: one capital is sure
		r.query(t, "udp", nil)
	}
	if !mixed.Load() {
		t.Error("no question has a capital")
	}
}

// TestNoRate lets a client ask on and on that has had its burst.
func TestNoRate(t *testing.T) {
	configtest.InEffect(t, "dns64", "rate_per_client")
	r := serve(t, written(t, "rate_per_client = 0\nburst = 1"), free(t))
	conn, err := net.Dial("udp", r.at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	q, _ := new(dns.Msg).SetQuestion("ipv4only.arpa.", dns.TypeAAAA).Pack()
	for range 20 {
		if _, err := conn.Write(q); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all are answered", func() bool { return r.value("answers_total", "local") == 20 })
}

// TestClientLength takes two hosts of one /64 for two clients.
func TestClientLength(t *testing.T) {
	configtest.InEffect(t, "dns64", "client_length", "name")
	r := serve(t, written(t, "client_length = 128\nname = \"house\"\nclients = [\"2001:db8::/32\"]"), free(t))
	first, _ := r.policy.Load().Client(netip.MustParseAddr("2001:db8::1"))
	second, _ := r.policy.Load().Client(netip.MustParseAddr("2001:db8::2"))
	if first == second {
		t.Errorf("both are %v", first)
	}
	if r.Name() != "house" {
		t.Errorf("the name is %s", r.Name())
	}
}
