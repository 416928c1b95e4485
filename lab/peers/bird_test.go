// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
)

func TestBirdConfig(t *testing.T) {
	c := Bird{Name: "router", RouterID: netip.MustParseAddr("192.0.2.1"), AS: 64513, Learn: 119, Sessions: []BirdSession{{
		Name: "relay", Local: netip.MustParseAddr("2001:db8::1"), Neighbor: netip.MustParseAddr("2001:db8::2"), AS: 64512,
		Password: "secret", Passive: true, Graceful: true, TTLSecurity: true,
	}}}
	got := c.config()
	for _, line := range []string{
		"router id 192.0.2.1;", "local 2001:db8::1 as 64513;", "neighbor 2001:db8::2 as 64512;", `password "secret";`, "passive yes;",
		"ttl security on;", "graceful restart on;", "kernel table 119;", "ipv6 { table signs_ipv6; import none; export all; next hop self; };",
	} {
		if !strings.Contains(got, line) {
			t.Errorf("no %q in\n%s", line, got)
		}
	}
	c.Sessions[0].Network = 100
	for _, line := range []string{"kernel table 100; ipv6 { table relay_ipv6; import where krt_source = 73; export none; };", "ipv4 { table relay_ipv4; import none; export all; next hop self; };"} {
		if got := c.config(); !strings.Contains(got, line) {
			t.Errorf("no %q in\n%s", line, got)
		}
	}
	c.Sessions[0].VRF = "red"
	for _, line := range []string{"\tvrf \"red\";\n", "protocol kernel learn_relay_ipv4 { vrf \"red\"; learn; "} {
		if got := c.config(); !strings.Contains(got, line) {
			t.Errorf("no %q in\n%s", line, got)
		}
	}
	c.Learn, c.Sessions[0] = 0, BirdSession{Name: "relay"}
	for _, line := range []string{"password", "passive", "ttl security", "graceful restart on", "signs", "vrf"} {
		if got := c.config(); strings.Contains(got, line) {
			t.Errorf("%q in\n%s", line, got)
		}
	}
}

// TestAskBird plays BIRD's side of the conversation.
func TestAskBird(t *testing.T) {
	for _, tt := range []struct{ name, reply, want, fault string }{
		{"one line", "0016 Access restricted\n", "Access restricted", ""},
		{"several", "1007-Table master4:\n 192.0.2.0/24 unicast\n1012-\tBGP.med: 7\n0000 \n", "Table master4:\n192.0.2.0/24 unicast\n\tBGP.med: 7", ""},
		{"nothing found", "8001 Network not found\n", "", ""},
		{"refused", "9001 syntax error\n", "", "BIRD refuses: syntax error"},
		{"broken off", "1007-Table master4:\n", "", "the answer of BIRD broke off"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "bird.ctl")
			listener, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			go func() {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				fmt.Fprint(conn, "0001 BIRD 2.0.12 ready.\n")
				var command string
				if _, err := fmt.Fscanln(conn, &command); err == nil && command == "ask" {
					fmt.Fprint(conn, tt.reply)
				}
			}()
			got, err := AskBird(socket, "ask")
			if got != tt.want || (err == nil) != (tt.fault == "") || err != nil && !strings.HasPrefix(err.Error(), tt.fault) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}
