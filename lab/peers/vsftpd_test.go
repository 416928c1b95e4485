// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peers

import (
	"net/netip"
	"strings"
	"testing"
)

func TestVsftpdConfig(t *testing.T) {
	c := Vsftpd{
		Name: "ftp", Address: netip.MustParseAddr("192.0.2.2"), Port: 2121, Root: "/srv/ftp", PassiveMin: 30000, PassiveMax: 30009,
		PassiveAddress: netip.MustParseAddr("198.51.100.1"), Certificate: "/c.pem", Key: "/k.pem",
	}
	c6 := Vsftpd{Address: netip.MustParseAddr("2001:db8::2")}.config("/empty")
	for _, line := range []string{"listen=NO\n", "listen_ipv6=YES\n", "listen_address6=2001:db8::2\n"} {
		if !strings.Contains(c6, line) {
			t.Errorf("no %q in\n%s", line, c6)
		}
	}
	optional := []string{
		"listen_port=2121\n", "pasv_min_port=30000\n", "pasv_max_port=30009\n", "pasv_address=198.51.100.1\n",
		"rsa_cert_file=/c.pem\n", "rsa_private_key_file=/k.pem\n", "ssl_enable=YES\n",
	}
	always := []string{"listen_address=192.0.2.2\n", "anon_root=/srv/ftp\n", "secure_chroot_dir=/empty\n"}
	full, least := c.config("/empty"), Vsftpd{Address: c.Address, Root: c.Root}.config("/empty")
	for _, line := range always {
		if !strings.Contains(full, line) || !strings.Contains(least, line) {
			t.Errorf("no %q in\n%s\nor\n%s", line, full, least)
		}
	}
	for _, line := range optional {
		key, _, _ := strings.Cut(line, "=")
		if !strings.Contains(full, line) || strings.Contains(least, key) {
			t.Errorf("no %q in\n%s\nor its key in\n%s", line, full, least)
		}
	}
}
