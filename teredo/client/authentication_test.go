// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/teredo"
	"github.com/isthmus-net/isthmus/teredo/client"
	"github.com/isthmus-net/isthmus/teredo/server"
)

var (
	sha1Key   = teredo.Credential{ID: "north", Secret: []byte("correct horse battery staple"), Algorithm: teredo.HMACSHA1}
	sha256Key = teredo.Credential{ID: "south", Secret: []byte("correct horse battery stable"), Algorithm: teredo.HMACSHA256}
)

func withKey(k teredo.Credential) option { return func(c *client.Config) { c.Credential = k } }

// signed answers a solicitation under a key; change may spoil the parts before
// the value is computed.
func signed(rs teredo.Packet, k teredo.Credential, origin netip.AddrPort, change ...func(*teredo.Auth)) []byte {
	auth := teredo.Auth{ClientID: []byte(k.ID), Nonce: rs.Auth.Nonce}
	for _, f := range change {
		f(&auth)
	}
	ra := teredo.RouterAdvertisement{
		Src: teredo.LinkLocal(teredo.FlagCone, primaryPort), Dst: rs.IPv6.Src(), MTU: 1280,
		Prefix: netip.MustParsePrefix("2001:0:cb00:7101::/64"),
	}
	p := ra.AppendTo(nil)
	auth.Value = teredo.NewKey(k.Algorithm, k.Secret).Value(auth.Nonce, auth.Confirmation, origin, p)
	return append(teredo.AppendOrigin(auth.AppendTo(nil), origin), p...)
}

// refusal is an answer that says to get another key, without a value.
func refusal(rs teredo.Packet, id string) []byte {
	return advertisement(rs, mapping, func(a *teredo.Auth, _ *teredo.RouterAdvertisement) {
		a.ClientID, a.Confirmation = []byte(id), 1
	})
}

func TestAuthenticatedSolicitation(t *testing.T) {
	for _, k := range []teredo.Credential{sha1Key, sha256Key} {
		t.Run(k.Algorithm.String(), func(t *testing.T) {
			b := newBench(t, withKey(k))
			b.begin(client.Server{Primary: primary, Secondary: second})
			rs := b.solicitation(primaryPort)
			if string(rs.Auth.ClientID) != k.ID || rs.Auth.Confirmation != 0 || !teredo.NewKey(k.Algorithm, k.Secret).Verify(&rs) {
				t.Errorf("authentication %+v", rs.Auth)
			}
			b.udp(primaryPort, signed(rs, k, mapping))
			if s := b.c.Snapshot(); s.State != client.Qualified || !s.Authenticated || s.Mapping != mapping {
				t.Errorf("snapshot %+v, dropped %s", s, b.dropped())
			}
			rs = b.solicitation(secondPort)
			if !teredo.NewKey(k.Algorithm, k.Secret).Verify(&rs) {
				t.Error("the secondary address is asked without the key")
			}
			b.want("second answer", b.udp(secondPort, signed(rs, k, mapping)), "event: NAT: endpoint-independent mapping, port not preserved")
		})
	}
}

// What a client with a key does not take. None of it ends the wait for the right
// answer.
func TestForgedAuthentication(t *testing.T) {
	for _, tt := range []struct {
		name   string
		forge  func(rs teredo.Packet) []byte
		reason string
	}{
		{"no key: nonce alone", func(rs teredo.Packet) []byte { return advertisement(rs, mapping) }, "wrong_authentication"},
		{"identifier without value", func(rs teredo.Packet) []byte {
			return advertisement(rs, mapping, func(a *teredo.Auth, _ *teredo.RouterAdvertisement) { a.ClientID = rs.Auth.ClientID })
		}, "wrong_authentication"},
		{"value of the solicitation", func(rs teredo.Packet) []byte {
			return advertisement(rs, mapping, func(a *teredo.Auth, _ *teredo.RouterAdvertisement) {
				a.ClientID, a.Value = rs.Auth.ClientID, rs.Auth.Value
			})
		}, "wrong_authentication"},
		{"another secret", func(rs teredo.Packet) []byte {
			k := sha1Key
			k.Secret = sha256Key.Secret
			return signed(rs, k, mapping)
		}, "wrong_authentication"},
		{"another algorithm", func(rs teredo.Packet) []byte {
			k := sha1Key
			k.Algorithm = teredo.HMACSHA256
			return signed(rs, k, mapping)
		}, "wrong_authentication"},
		{"another client's answer", func(rs teredo.Packet) []byte { return signed(rs, sha256Key, mapping) }, "wrong_authentication"},
		{"another identifier under our key", func(rs teredo.Packet) []byte {
			return signed(rs, sha1Key, mapping, func(a *teredo.Auth) { a.ClientID = []byte("south") })
		}, "wrong_authentication"},
		{"origin replaced on the way", func(rs teredo.Packet) []byte {
			b := signed(rs, sha1Key, mapping)
			at := bytes.Index(b, teredo.AppendOrigin(nil, mapping))
			copy(b[at:], teredo.AppendOrigin(nil, foreign))
			return b
		}, "wrong_authentication"},
		{"confirmation byte replaced on the way", func(rs teredo.Packet) []byte {
			b := signed(rs, sha1Key, mapping)
			b[4+len("north")+20+8] = 1
			return b
		}, "wrong_authentication"},
		{"answer to an older solicitation", func(rs teredo.Packet) []byte {
			return signed(rs, sha1Key, mapping, func(a *teredo.Auth) { a.Nonce[0]++ })
		}, "wrong_nonce"},
		{"refusal without a value", func(rs teredo.Packet) []byte { return refusal(rs, "north") }, "key_refused"},
		{"refusal of another client", func(rs teredo.Packet) []byte { return refusal(rs, "south") }, "wrong_authentication"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, withKey(sha1Key))
			b.begin(client.Server{Primary: primary})
			rs := b.solicitation(primaryPort)
			b.want("output", b.udp(primaryPort, tt.forge(rs)))
			if got := b.dropped(); got != tt.reason+" 1" {
				t.Errorf("dropped %q, want %s", got, tt.reason)
			}
			b.udp(primaryPort, signed(rs, sha1Key, mapping))
			if b.c.Snapshot().State != client.Qualified {
				t.Error("the right answer behind it does not count")
			}
		})
	}
}

// A refusal under the key is final: the next server is asked at once, and behind
// the last the state says why the client waits.
func TestKeyRefused(t *testing.T) {
	refuse := func(a *teredo.Auth) { a.Confirmation = 1 }
	t.Run("at the start", func(t *testing.T) {
		b := newBench(t, withKey(sha1Key))
		b.begin(client.Server{Primary: primary}, client.Server{Primary: second})
		b.want("refused", b.udp(primaryPort, signed(b.solicitation(primaryPort), sha1Key, mapping, refuse)),
			"to secondary: solicitation", "event: refused: 203.0.113.1")
		for range 2 {
			b.tick()
		}
		_, got := b.tick()
		b.want("the other is silent", got, "event: silent: 203.0.113.2", "event: off-line")
		if s := b.c.Snapshot().State; s != client.Refused || s.String() != "key_refused" {
			t.Errorf("state %s", s)
		}
		d, got := b.tick()
		b.want("again", got, "to primary: solicitation")
		if d > time.Second {
			t.Errorf("asked again after %v", d)
		}
		b.udp(primaryPort, signed(b.solicitation(primaryPort), sha1Key, mapping))
		if s := b.c.Snapshot().State; s != client.Qualified {
			t.Errorf("state %s", s)
		}
	})
	t.Run("at a refresh", func(t *testing.T) {
		b := newBench(t, withKey(sha1Key))
		b.begin(client.Server{Primary: primary})
		b.udp(primaryPort, signed(b.solicitation(primaryPort), sha1Key, mapping))
		b.tick()
		b.want("refused", b.udp(primaryPort, signed(b.solicitation(primaryPort), sha1Key, mapping, refuse)),
			"event: refused: 203.0.113.1", "event: lost: the server refuses the key", "event: off-line")
		if s := b.c.Snapshot(); s.State != client.Refused || s.Address.IsValid() || s.Authenticated {
			t.Errorf("snapshot %+v", s)
		}
	})
	t.Run("by the secondary address", func(t *testing.T) {
		b := newBench(t, withKey(sha1Key))
		b.begin(client.Server{Primary: primary, Secondary: second})
		b.udp(primaryPort, signed(b.solicitation(primaryPort), sha1Key, mapping))
		b.want("refused", b.udp(secondPort, signed(b.solicitation(secondPort), sha1Key, mapping, refuse)), "event: NAT: unknown, port not preserved")
		if s := b.c.Snapshot().State; s != client.Qualified {
			t.Errorf("state %s", s)
		}
	})
	t.Run("by a server that does not know the client", func(t *testing.T) {
		b := newBench(t, withKey(sha1Key))
		b.begin(client.Server{Primary: primary})
		b.want("refusal without value", b.udp(primaryPort, refusal(b.solicitation(primaryPort), "north")))
		for range 2 {
			b.tick()
		}
		_, got := b.tick()
		b.want("end of the wait", got, "event: refused: 203.0.113.1", "event: off-line")
		if s := b.c.Snapshot().State; s != client.Refused {
			t.Errorf("state %s", s)
		}
	})
	t.Run("client without a key", func(t *testing.T) {
		b := newBench(t)
		b.begin(client.Server{Primary: primary})
		b.want("refusal", b.udp(primaryPort, refusal(b.solicitation(primaryPort), "")))
		for range 3 {
			b.tick()
		}
		if s := b.c.Snapshot().State; s != client.Refused {
			t.Errorf("state %s", s)
		}
	})
}

func TestSetCredential(t *testing.T) {
	set := func(b *bench, k teredo.Credential) []string {
		b.out.Reset()
		if err := b.c.SetCredential(k, b.now, &b.out); err != nil {
			b.t.Fatal(err)
		}
		return b.show()
	}
	t.Run("while waiting", func(t *testing.T) {
		b := newBench(t)
		b.begin(client.Server{Primary: primary})
		for range 3 {
			b.tick()
		}
		b.want("new key", set(b, sha1Key), "to primary: solicitation")
		b.udp(primaryPort, signed(b.solicitation(primaryPort), sha1Key, mapping))
		if s := b.c.Snapshot(); s.State != client.Qualified || !s.Authenticated {
			t.Errorf("snapshot %+v", s)
		}
		b.want("the same key", set(b, sha1Key))
	})
	t.Run("while qualified", func(t *testing.T) {
		b := newQualified(t)
		address := b.address()
		b.want("new key", set(b, sha256Key), "to primary: solicitation")
		b.want("answer", b.udp(primaryPort, signed(b.solicitation(primaryPort), sha256Key, mapping)))
		if s := b.c.Snapshot(); s.Address != address || !s.Authenticated {
			t.Errorf("snapshot %+v", s)
		}
		b.want("no key", set(b, teredo.Credential{}), "to primary: solicitation")
		b.udp(primaryPort, b.answer(mapping))
		if s := b.c.Snapshot(); s.Address != address || s.Authenticated {
			t.Errorf("snapshot %+v", s)
		}
	})
	t.Run("before the start", func(t *testing.T) {
		b := newBench(t)
		b.want("key", set(b, sha1Key))
	})
	t.Run("that cannot be used", func(t *testing.T) {
		b := newQualified(t)
		if err := b.c.SetCredential(teredo.Credential{ID: "north"}, b.now, &b.out); err == nil {
			t.Error("no error")
		}
	})
}

// The client against the server engine, over a NAT.
func TestSecureQualification(t *testing.T) {
	for _, tt := range []struct {
		name    string
		key     teredo.Credential
		expired bool
		want    client.State
		dropped server.Reason // by the server
	}{
		{"right key, HMAC-SHA1", sha1Key, false, client.Qualified, 0},
		{"right key, HMAC-SHA256", sha256Key, false, client.Qualified, 0},
		{"expired key", sha1Key, true, client.Refused, 0},
		{"wrong secret", teredo.Credential{ID: "north", Secret: sha256Key.Secret}, false, client.OffLine, server.AuthWrongValue},
		{"unknown client", teredo.Credential{ID: "west", Secret: sha1Key.Secret}, false, client.OffLine, server.AuthUnknownClient},
		{"no key", teredo.Credential{}, false, client.OffLine, server.AuthMissing},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			keys := []server.Key{{Credential: sha1Key}, {Credential: sha256Key}}
			if tt.expired {
				keys[0].Expires = start
			}
			if err := w.server.engine.Reconfigure(server.Config{
				Primary: primary, Secondary: second, Keys: keys, RequireAuth: true, Rand: seeded(101),
			}); err != nil {
				t.Fatal(err)
			}
			c := w.client(nil, withKey(tt.key))
			if !w.net.RunUntil(30*time.Second, func() bool { return c.engine.Snapshot().State == tt.want }) {
				t.Fatalf("state %s, want %s", c.engine.Snapshot().State, tt.want)
			}
			counters := w.server.engine.Counters()
			if tt.dropped != 0 && counters.Dropped[tt.dropped] == 0 {
				t.Errorf("the server's counters: %+v", counters)
			}
			if s := c.engine.Snapshot(); s.Authenticated != (tt.want == client.Qualified) {
				t.Errorf("snapshot %+v", s)
			}
		})
	}
}

// FuzzAuthenticatedAnswer: nothing but an answer under the key qualifies a
// client that has one.
func FuzzAuthenticatedAnswer(f *testing.F) {
	b := newBench(f, withKey(sha1Key))
	b.begin(client.Server{Primary: primary})
	rs := b.solicitation(primaryPort)
	f.Add(signed(rs, sha1Key, mapping))
	f.Add(signed(rs, sha1Key, mapping, func(a *teredo.Auth) { a.Confirmation = 1 }))
	f.Add(refusal(rs, "north"))
	f.Add(advertisement(rs, mapping))
	f.Fuzz(func(t *testing.T, payload []byte) {
		b := newBench(t, withKey(sha1Key))
		b.begin(client.Server{Primary: primary})
		b.udp(primaryPort, payload)
		p, err := teredo.Parse(payload)
		good := err == nil && p.Auth.Confirmation == 0 && teredo.NewKey(sha1Key.Algorithm, sha1Key.Secret).Verify(&p)
		if got := b.c.Snapshot().State == client.Qualified; got && !good {
			t.Fatalf("qualified by %x", payload)
		}
		for _, d := range b.out.UDP {
			if _, _, ok := packet.ParseIPv6(d.Payload); ok {
				t.Fatalf("a solicitation without authentication: %x", d.Payload)
			}
		}
	})
}
