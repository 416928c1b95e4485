// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"net/netip"
)

// Hostapd is the configuration of hostapd as an authenticator of IEEE 802.1X on a wired interface. It opens
// and closes no port: who started it listens at Control, and does.
type Hostapd struct {
	// Name distinguishes instances; it names the files.
	Name string
	// Interface is that of the terminals.
	Interface string
	// Server is asked who may come in, by Secret; it is told of sessions at Accounting, if that is valid.
	Server, Accounting netip.AddrPort
	Secret             string
}

// Control is the path of the control socket of hostapd or wpa_supplicant that were given a folder.
func Control(dir, name, iface string) string { return fmt.Sprintf("%s/%s.ctl/%s", dir, name, iface) }

// Hostapd writes the configuration below dir and returns the command.
func (p *Peers) Hostapd(dir string, c Hostapd) (*Command, error) {
	i, err := p.instance("hostapd", dir, c.Name)
	if err != nil {
		return nil, err
	}
	// Terminals cannot be told apart by where group frames go: EAPOL goes to the address of the port access entity.
	text := fmt.Sprintf(`interface=%s
driver=wired
ieee8021x=1
use_pae_group_addr=1
eap_reauth_period=0
nas_identifier=%s
ctrl_interface=%s
`, c.Interface, c.Name, i.at(".ctl"))
	text += c.server("auth", c.Server)
	if c.Accounting.IsValid() {
		text += c.server("acct", c.Accounting)
	}
	return i.command(text, "-t", i.at(configured))
}

// server are the lines of a server.
func (c Hostapd) server(of string, at netip.AddrPort) string {
	return fmt.Sprintf("%[1]s_server_addr=%[2]s\n%[1]s_server_port=%[3]d\n%[1]s_server_shared_secret=%[4]s\n", of, at.Addr(), at.Port(), c.Secret)
}

// WPASupplicant is the configuration of wpa_supplicant as a supplicant of IEEE 802.1X on a wired interface, by
// EAP-TLS.
type WPASupplicant struct {
	// Name distinguishes instances; it names the files.
	Name string
	// Interface is that of the access.
	Interface string
	// Identity is what the terminal calls itself.
	Identity string
	// CA, Certificate and Key are files; ServerName is what the certificate of the server has to be for.
	CA, Certificate, Key, ServerName string
}

// WPASupplicant writes the configuration below dir and returns the command.
func (p *Peers) WPASupplicant(dir string, c WPASupplicant) (*Command, error) {
	i, err := p.instance("wpa_supplicant", dir, c.Name)
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf(`ctrl_interface=%s
ap_scan=0
network={
	key_mgmt=IEEE8021X
	eap=TLS
	identity=%q
	ca_cert=%q
	client_cert=%q
	private_key=%q
	domain_match=%q
	eapol_flags=0
}
`, i.at(".ctl"), c.Identity, c.CA, c.Certificate, c.Key, c.ServerName)
	return i.command(text, "-t", "-D", "wired", "-i", c.Interface, "-c", i.at(configured))
}
