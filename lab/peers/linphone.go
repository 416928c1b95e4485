// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peers

import (
	"cmp"
	"fmt"
	"net/netip"
	"path/filepath"
	"time"
)

// Linphone is the configuration of linphonec, a SIP telephone that takes orders on its standard input,
// such as "answer" on a line. [Linphone.Orders] come first.
type Linphone struct {
	// Name distinguishes instances; it names the files.
	Name string
	// Port is that of SIP on every address.
	Port uint16
	// User is its name in Domain and in digests, with a password.
	User, Domain, Password string
	// Server is the address of registrar and proxy.
	Server netip.Addr
	// Play is the file of WAV, of 8 kHz, that it plays in calls; "" is a minute of silence.
	Play string
}

// Orders are those by which a telephone with its files below dir has files in place of a sound card.
func (c Linphone) Orders(dir string) []string {
	return []string{"soundcard use files", "play " + filepath.Join(dir, c.Name+".wav")}
}

// Linphone writes the configuration below dir and returns the command.
func (p *Peers) Linphone(dir string, c Linphone) (*Command, error) {
	i, err := p.instance("linphonec", dir, c.Name)
	if err != nil {
		return nil, err
	}
	home, err := i.folder(".linphone")
	if err != nil {
		return nil, err
	}
	if _, err := i.folder(".linphone/.local/share/linphone"); err != nil { // without it, it has no sockets either
		return nil, err
	}
	if _, err := i.folder(".linphone/.config/linphone"); err != nil {
		return nil, err
	}
	if err := i.write(".wav", cmp.Or(c.Play, silence(time.Minute))); err != nil {
		return nil, err
	}
	config := c.config()
	if err := i.write(".linphone/rc", config); err != nil {
		return nil, err
	}
	file := filepath.Join(home, "rc")
	return &Command{
		Path: i.path, Args: []string{"-c", file}, Config: config, ConfigPath: file,
		Env: []string{"HOME=" + home, "PULSE_RUNTIME_PATH=" + home}, // or a folder in /tmp stays behind
	}, nil
}

func (c Linphone) config() string {
	six, server := 0, c.Server.String()
	if c.Server.Is6() {
		six, server = 1, "["+server+"]"
	}
	return fmt.Sprintf(`[sip]
sip_port=%d
sip_tcp_port=0
sip_tls_port=0
use_ipv6=%d
default_proxy=0
contact=sip:%[3]s@%[4]s

[video]
enabled=0
capture=0
display=0

[proxy_0]
reg_proxy=<sip:%[5]s;transport=udp>
reg_route=<sip:%[5]s;transport=udp;lr>
reg_identity=sip:%[3]s@%[4]s
reg_expires=600
reg_sendregister=1

[auth_info_0]
username=%[3]s
passwd=%[6]s
realm=%[4]s
domain=%[4]s
`, c.Port, six, c.User, c.Domain, server, c.Password)
}
