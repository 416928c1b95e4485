// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/teredo"
)

// Authentication values of rsMiredo and of raMiredo with origin, by Python's
// hmac: text nonce, confirmation byte, origin, packet.
const (
	valueRS1        = "ff1bb315f166905f6b0a20cc5bfbd77a658482cb" // HMAC-SHA1 of north
	valueRA1        = "609db2fec988bc16476a251241a92377d51f05c8"
	valueRA1Expired = "fd32a801b6e6c9e2b6c7d7adf49569ba5f529344"
	valueRS2        = "68743bb916a55f7d14b50761e8b2f22142fada634d7d1fe794001273a1dc377a" // HMAC-SHA256 of south
	valueRA2        = "2ae9a2702c21b3c5f03ed1c2360c2aa26605e22a2d247a724ecc2b2b09c7f709"
	valueRA2Expired = "7415ed2af0b5b40496fa5966523f6b9fcd42d86103dd5adbab5f734043d24437"

	north, south, nobody = "6e6f727468", "736f757468", "6e6f626f6479"
)

var keys = []Key{
	{Credential: teredo.Credential{ID: "north", Secret: []byte("correct horse battery staple"), Algorithm: teredo.HMACSHA1}},
	{Credential: teredo.Credential{ID: "south", Secret: []byte("correct horse battery stable"), Algorithm: teredo.HMACSHA256}},
}

// keyed gives the server keys; required makes them necessary; expired makes them
// all too old.
func keyed(c *Config)    { c.Keys = keys }
func required(c *Config) { c.Keys, c.RequireAuth = keys, true }
func expired(c *Config) {
	required(c)
	c.Keys = append([]Key(nil), keys...)
	for i := range c.Keys {
		c.Keys[i].Expires = now
	}
}

// auth is an authentication indication: identifier, value, nonce, confirmation.
func auth(id, value, confirmation string) string {
	return fmt.Sprintf("0001%02x%02x", len(id)/2, len(value)/2) + id + value + nonce + confirmation
}

func TestAuthentication(t *testing.T) {
	const short = "ff1bb315f166905f6b0a20cc5bfbd77a658482"
	for _, tt := range []struct {
		name string
		edit func(*Config)
		in   string // before the solicitation
		want string // before the advertisement; of what was sent
		why  Reason // or why nothing was
		told Counters
	}{
		{"HMAC-SHA1", keyed, auth(north, valueRS1, "00"), auth(north, valueRA1, "00"), accepted, Counters{Authenticated: 1}},
		{"HMAC-SHA256", keyed, auth(south, valueRS2, "00"), auth(south, valueRA2, "00"), accepted, Counters{Authenticated: 1}},
		{"HMAC-SHA1, required", required, auth(north, valueRS1, "00"), auth(north, valueRA1, "00"), accepted, Counters{Authenticated: 1}},
		{"HMAC-SHA1, key expired", expired, auth(north, valueRS1, "00"), auth(north, valueRA1Expired, "01"), accepted, Counters{KeysExpired: 1}},
		{"HMAC-SHA256, key expired", expired, auth(south, valueRS2, "00"), auth(south, valueRA2Expired, "01"), accepted, Counters{KeysExpired: 1}},
		{"key not yet expired", func(c *Config) { expired(c); c.Keys[0].Expires = now.Add(1) },
			auth(north, valueRS1, "00"), auth(north, valueRA1, "00"), accepted, Counters{Authenticated: 1}},
		{"no key, not required: nonce alone", keyed, auth("", "", "00"), auth("", "", "00"), accepted, Counters{}},
		{"no authentication, not required", keyed, "", "", accepted, Counters{}},
		{"unknown client, not required", keyed, auth(nobody, valueRS1, "00"), auth(nobody, "", "01"), accepted, Counters{KeysUnknown: 1}},

		{"value of another key", keyed, auth(south, valueRS1, "00"), "", AuthWrongValue, Counters{}},
		{"wrong value, not required", keyed, auth(north, valueRA1, "00"), "", AuthWrongValue, Counters{}},
		{"wrong value, required", required, auth(north, valueRA1, "00"), "", AuthWrongValue, Counters{}},
		{"wrong value, expired key", expired, auth(north, valueRA1, "00"), "", AuthWrongValue, Counters{}},
		{"value cut short", required, auth(north, short, "00"), "", AuthWrongValue, Counters{}},
		{"value too long", required, auth(north, valueRS1+"00", "00"), "", AuthWrongValue, Counters{}},
		{"identifier of a client with a key, no value", keyed, auth(north, "", "00"), "", AuthWrongValue, Counters{}},
		{"confirmation byte not covered by the value", required, auth(north, valueRS1, "01"), "", AuthWrongValue, Counters{}},
		{"origin not covered by the value", required, auth(north, valueRS1, "00") + origin, "", AuthWrongValue, Counters{}},
		{"unknown client, required", required, auth(nobody, valueRS1, "00"), "", AuthUnknownClient, Counters{}},
		{"value without identifier, required", required, auth("", valueRS1, "00"), "", AuthUnknownClient, Counters{}},
		{"nonce alone, required", required, auth("", "", "00"), "", AuthMissing, Counters{}},
		{"no authentication, required", required, "", "", AuthMissing, Counters{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newEngine(t, tt.edit)
			var out packet.Batch
			e.HandleUDP(netip.MustParseAddrPort(clientAddr), Primary, testutil.Unhex(t, tt.in+rsMiredo), now, &out)
			var want []sent
			if tt.told.Received = 1; tt.why == accepted {
				tt.told.Advertisements = 1
				want = []sent{{Primary, clientAddr, tt.want + origin + raMiredo}}
			} else {
				tt.told.Dropped[tt.why] = 1
			}
			if diff := cmp.Diff(want, render(&out)); diff != "" {
				t.Errorf("sent (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.told, e.Counters()); diff != "" {
				t.Errorf("counters (-want +got):\n%s", diff)
			}
		})
	}
}

// Bubbles need no authentication: it is of the qualification alone (RFC 4380
// section 5.3.1 rule 4).
func TestAuthenticationOfBubbles(t *testing.T) {
	e := newEngine(t, required)
	var out packet.Batch
	e.HandleUDP(netip.MustParseAddrPort(clientAddr), Primary, testutil.Unhex(t, bubble(255, client, peer)), now, &out)
	if len(out.UDP) != 1 {
		t.Errorf("bubble dropped: %s", drops(e))
	}
}

// A repeated solicitation is answered as the first one, to whoever sends it: the
// server keeps no state. The answer bears the nonce of the first.
func TestAuthenticationReplayed(t *testing.T) {
	e := newEngine(t, required)
	in := auth(north, valueRS1, "00") + rsMiredo
	var out packet.Batch
	for range 2 {
		e.HandleUDP(netip.MustParseAddrPort(clientAddr), Primary, testutil.Unhex(t, in), now, &out)
	}
	got := render(&out)
	if len(got) != 2 || got[0] != got[1] {
		t.Errorf("answers differ: %v", got)
	}
	out.Reset()
	other := netip.MustParseAddrPort(otherAddr)
	e.HandleUDP(other, Primary, testutil.Unhex(t, in), now, &out)
	p, err := teredo.Parse(out.UDP[0].Payload)
	if err != nil || p.Origin != other || !teredo.NewKey(keys[0].Algorithm, keys[0].Secret).Verify(&p) {
		t.Errorf("answer to another address: origin %v, %v", p.Origin, err)
	}
}

func TestReconfigureKeys(t *testing.T) {
	cfg := newEngine(t, required).cfg
	for _, tt := range []struct {
		name string
		edit func(*Config)
		want string // part of the error
	}{
		{"two keys of one client", func(c *Config) { c.Keys = append(keys[:1:1], keys[0]) }, "two keys"},
		{"secret too short", func(c *Config) { c.Keys = []Key{{Credential: teredo.Credential{ID: "north", Secret: []byte("short")}}} }, "at least 16"},
		{"too many", func(c *Config) { c.Keys = make([]Key, MaxKeys+1) }, "spread"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := newEngine(t, required)
			bad := cfg
			bad.Rand = e.cfg.Rand
			tt.edit(&bad)
			if err := e.Reconfigure(bad); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			var out packet.Batch
			e.HandleUDP(netip.MustParseAddrPort(clientAddr), Primary, testutil.Unhex(t, auth(north, valueRS1, "00")+rsMiredo), now, &out)
			if len(out.UDP) != 1 {
				t.Error("the old keys are gone")
			}
		})
	}
	t.Run("key taken away", func(t *testing.T) {
		e := newEngine(t, required)
		next := e.cfg
		next.Keys = keys[1:]
		if err := e.Reconfigure(next); err != nil {
			t.Fatal(err)
		}
		var out packet.Batch
		e.HandleUDP(netip.MustParseAddrPort(clientAddr), Primary, testutil.Unhex(t, auth(north, valueRS1, "00")+rsMiredo), now, &out)
		if e.Counters().Dropped[AuthUnknownClient] != 1 {
			t.Errorf("dropped: %s", drops(e))
		}
	})
}

// TestKeySize holds the memory of a key to what MaxKeys says.
func TestKeySize(t *testing.T) {
	const count = 4096
	list := make([]Key, count)
	for i := range list {
		list[i] = Key{
			Credential: teredo.Credential{ID: fmt.Sprintf("client-%d", i), Secret: []byte("0123456789abcdef"), Algorithm: teredo.HMACSHA256},
			Expires:    now.Add(time.Hour),
		}
	}
	cfg := newEngine(t, nil).cfg
	cfg.Keys = list
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	ring, err := cfg.keyring()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range ring { // the first value makes a key keep more
		k.key.Value([8]byte{}, 0, netip.AddrPort{}, nil)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / count
	runtime.KeepAlive(ring)
	t.Logf("%d bytes a key", each)
	if each > 1536 {
		t.Errorf("%d bytes a key, want at most 1536", each)
	}
}
