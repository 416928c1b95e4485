// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peers

import "fmt"

// Tshark returns the command that reads a capture file and prints what args
// ask for. Teredo is recognised on every UDP port, not on 3544 alone, since
// clients and relays use others; each port in extraPorts is decoded as Teredo
// even where Wireshark's heuristic would not see it.
//
// Wireshark knows no trailers of RFC 6081; those need a check of their own.
func (p *Peers) Tshark(capture string, extraPorts []uint16, args ...string) (*Command, error) {
	path, err := p.Program("tshark")
	if err != nil {
		return nil, err
	}
	all := []string{"-n", "-r", capture, "--enable-heuristic", "teredo_udp"}
	for _, port := range extraPorts {
		all = append(all, "-d", fmt.Sprintf("udp.port==%d,teredo", port))
	}
	return &Command{Path: path, Args: append(all, args...)}, nil
}
