// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peers

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"time"
)

// Baresip is the configuration of baresip, a SIP telephone without a screen. It writes what it hears
// to files, and takes orders on its standard input, such as "/hold" on a line.
type Baresip struct {
	// Name distinguishes instances; it names the files.
	Name string
	// Device is the interface that it uses, Listen its address there with the port of SIP.
	Device string
	Listen netip.AddrPort
	// User is its name in Domain and in digests, with a password.
	User, Domain, Password string
	// Unregistered has it leave its address of record unregistered.
	Unregistered bool
	// Proxy is the SIP URI by which it sends everything.
	Proxy string
	// Answer has it answer calls.
	Answer bool
	// Dial, if it is set, is the URI that it calls once it runs.
	Dial string
	// Play is the file of WAV, of 8 kHz, that it plays in calls and at whose end it hangs up; "" is
	// Silence.
	Play string
	// Silence is how long that is; 0: a minute.
	Silence time.Duration
}

// Heard are the files of WAV that a telephone with its files below dir has written, of what was said
// by each end of each call.
func (c Baresip) Heard(dir string) ([]string, error) {
	return filepath.Glob(filepath.Join(dir, c.Name+heard, "*.wav"))
}

const heard = ".heard"

// Baresip writes the configuration below dir and returns the command.
func (p *Peers) Baresip(dir string, c Baresip) (*Command, error) {
	i, err := p.instance("baresip", dir, c.Name)
	if err != nil {
		return nil, err
	}
	folder, err := i.folder(".baresip")
	if err != nil {
		return nil, err
	}
	recordings, err := i.folder(heard)
	if err != nil {
		return nil, err
	}
	if c.Play == "" {
		c.Play = silence(cmp.Or(c.Silence, time.Minute))
	}
	for _, f := range []struct{ ending, text string }{
		{".baresip/accounts", c.account()}, {".baresip/contacts", ""}, {".wav", c.Play},
	} {
		if err := i.write(f.ending, f.text); err != nil {
			return nil, err
		}
	}
	config := c.config(filepath.Join(p.Dir, "root/usr/lib/baresip/modules"), i.at(".wav"), recordings)
	if err := i.write(".baresip/config", config); err != nil {
		return nil, err
	}
	args := []string{"-v", "-f", folder}
	if c.Dial != "" {
		args = append(args, "-e", "/dial "+c.Dial)
	}
	return &Command{Path: i.path, Args: args, Config: config, ConfigPath: filepath.Join(folder, "config")}, nil
}

func (c Baresip) account() string {
	mode, every := "manual", 600
	if c.Answer {
		mode = "auto"
	}
	if c.Unregistered {
		every = 0
	}
	return fmt.Sprintf("<sip:%s@%s>;auth_user=%s;auth_pass=%s;outbound=\"%s\";answermode=%s;audio_codecs=PCMU;regint=%d\n", c.User, c.Domain, c.User, c.Password, c.Proxy, mode, every)
}

func (c Baresip) config(modules, source, recordings string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "sip_listen %s\nnet_interface %s\nmodule_path %s\n", c.Listen, c.Device, modules)
	b.WriteString("module g711.so\nmodule aufile.so\nmodule sndfile.so\nmodule uuid.so\nmodule stdio.so\nmodule_app account.so\nmodule_app menu.so\n")
	fmt.Fprintf(&b, "audio_source aufile,%s\nsnd_path %s\n", source, recordings)
	return b.String()
}

// silence is a file of WAV of 8 kHz, which is what PCMU has.
func silence(lasts time.Duration) string {
	const rate = 8000
	samples := uint32(lasts.Seconds() * rate)
	return "RIFF" + little(36+2*samples, 4) + "WAVEfmt " + little(16, 4) + little(1, 2) + little(1, 2) +
		little(rate, 4) + little(2*rate, 4) + little(2, 2) + little(16, 2) + "data" + little(2*samples, 4) + string(make([]byte, 2*samples))
}

// little writes a number, the least octet first.
func little(n uint32, octets int) string {
	return string(binary.LittleEndian.AppendUint32(nil, n)[:octets])
}
