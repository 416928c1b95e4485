// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package clientrole

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTeredoAddr(t *testing.T) {
	tests := []struct {
		name, want, wantErr string
		cmd                 Addr
	}{
		{
			name: "worked example",
			cmd:  Addr{Address: []string{"2001:0:303:303:8000:e148:fefe:fefe"}},
			want: `2001:0:303:303:8000:e148:fefe:fefe
  prefix          2001::/32  the Teredo service
  server          3.3.3.3    global unicast
  flags           0x8000     random bits 0x000
  cone bit        yes        the client claims a full cone NAT
  mapped address  1.1.1.1    the client as the IPv4 Internet sees it; global unicast
  mapped port     7863       UDP
`,
		},
		{
			name: "private mapping, random flags, as JSON",
			cmd:  Addr{Address: []string{"3ffe:831f:303:303:2c41:f7ff:3f57:fefd"}, JSON: true},
			want: `[
  {
    "address": "3ffe:831f:303:303:2c41:f7ff:3f57:fefd",
    "prefix": "3ffe:831f::/32",
    "server": "3.3.3.3",
    "server_global": true,
    "flags": "0x2c41",
    "cone": false,
    "random": "0xb41",
    "mapped_address": "192.168.1.2",
    "mapped_port": 2048,
    "mapped_global": false
  }
]
`,
		},
		{
			name:    "native address",
			cmd:     Addr{Address: []string{"2001:db8::1"}},
			wantErr: "2001:db8::1 is no Teredo address",
		},
		{name: "no address", cmd: Addr{Address: []string{""}}, wantErr: `"" is not an IPv6 address: write it like`},
		{name: "a word", cmd: Addr{Address: []string{"foo"}}, wantErr: `"foo" is not an IPv6 address: write it like`},
		{name: "IPv4 address", cmd: Addr{Address: []string{"1.2.3.4"}}, wantErr: `"1.2.3.4" is not an IPv6 address: write it like`},
		{name: "address with a zone", cmd: Addr{Address: []string{"2001::1%eth0"}}, wantErr: `"2001::1%eth0" is not an IPv6 address`},
		{
			name:    "prefix of another size",
			cmd:     Addr{Prefix: []netip.Prefix{netip.MustParsePrefix("2001:db8::/48")}},
			wantErr: "is no Teredo service prefix",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			err := tt.cmd.Run(&out)
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("error %v, want one with %q", err, tt.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, out.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
