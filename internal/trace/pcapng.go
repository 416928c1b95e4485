// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/binary"
	"fmt"
	"io"
)

// The pcapng format (draft-ietf-opsawg-pcapng): blocks of
//
//	type(4) total length(4) body options total length(4)
//
// in little-endian, each body and each option padded to 32 bits.
const (
	blockSection   = 0x0a0d0d0a
	blockInterface = 1
	blockPacket    = 6
	byteOrderMagic = 0x1a2b3c4d

	optEnd        = 0
	optComment    = 1
	shbApp        = 4
	ifName        = 2
	ifDescription = 3
	ifResolution  = 9
	epbVerdict    = 7

	linkEthernet = 1
	linkRaw      = 101 // IPv4 or IPv6

	nanoseconds = 9 // resolution: a power of ten

	verdictTC  = 1 // the first byte of epb_verdict says whose it is
	verdictXDP = 2
)

// Writer writes samples as a pcapng file, with one interface for each instance,
// path, hook and device, and the verdict as a comment of the packet; verdicts of
// the fast path also as the option epb_verdict.
type Writer struct {
	// Snap is the most octets that a packet has; at first [Snap].
	Snap uint32

	w          io.Writer
	interfaces map[captureInterface]uint32
	block      []byte
}

type captureInterface struct {
	instance, hook, device string
	path                   Path
	link                   Link
}

// NewWriter writes the head of a file. application is what wrote it.
func NewWriter(w io.Writer, application string) (*Writer, error) {
	p := &Writer{Snap: Snap, w: w, interfaces: map[captureInterface]uint32{}}
	p.begin(blockSection)
	p.block = binary.LittleEndian.AppendUint32(p.block, byteOrderMagic)
	p.block = binary.LittleEndian.AppendUint16(p.block, 1) // version 1.0
	p.block = binary.LittleEndian.AppendUint16(p.block, 0)
	p.block = binary.LittleEndian.AppendUint64(p.block, 1<<64-1) // section length: not given
	p.option(shbApp, []byte(application))
	return p, p.end()
}

// Write appends one sample.
func (p *Writer) Write(s *Sample) error {
	in := captureInterface{s.Instance, s.Hook, s.Device, s.Path, s.Link}
	id, ok := p.interfaces[in]
	if !ok {
		id = uint32(len(p.interfaces))
		p.interfaces[in] = id
		if err := p.describe(in); err != nil {
			return err
		}
	}
	at := uint64(s.Time.UnixNano())
	p.begin(blockPacket)
	for _, v := range []uint32{id, uint32(at >> 32), uint32(at), uint32(len(s.Data)), uint32(max(s.Length, len(s.Data)))} {
		p.block = binary.LittleEndian.AppendUint32(p.block, v)
	}
	p.block = append(p.block, s.Data...)
	p.pad()
	p.option(optComment, []byte(comment(s)))
	if v := verdictOption(s); v != nil {
		p.option(epbVerdict, v)
	}
	return p.end()
}

func comment(s *Sample) string {
	text := fmt.Sprintf("%s: %s", s.Path, s.Verdict)
	if s.Reason != "" {
		text += " " + s.Reason
	}
	return text
}

// verdictOption is the verdict as the kernel numbers it: 64 bits behind the kind
// (TC_ACT_OK 0, SHOT 2, REDIRECT 7; XDP_DROP 1, PASS 2, REDIRECT 4).
func verdictOption(s *Sample) []byte {
	if s.Path != Fast {
		return nil
	}
	kind, numbers := byte(verdictTC), map[Verdict]uint64{Punt: 0, Drop: 2, Forward: 7}
	if s.Hook == "xdp" {
		kind, numbers = verdictXDP, map[Verdict]uint64{Drop: 1, Punt: 2, Forward: 4}
	}
	return binary.LittleEndian.AppendUint64([]byte{kind}, numbers[s.Verdict])
}

// describe writes the block of an interface.
func (p *Writer) describe(in captureInterface) error {
	link := uint16(linkRaw)
	if in.link == Ethernet {
		link = linkEthernet
	}
	name := in.device
	if name == "" {
		name = in.instance + "-" + in.hook
	}
	p.begin(blockInterface)
	p.block = binary.LittleEndian.AppendUint16(p.block, link)
	p.block = binary.LittleEndian.AppendUint16(p.block, 0)
	p.block = binary.LittleEndian.AppendUint32(p.block, p.Snap)
	p.option(ifName, []byte(name))
	p.option(ifDescription, []byte(fmt.Sprintf("isthmus %s, %s path, %s", in.instance, in.path, in.hook)))
	p.option(ifResolution, []byte{nanoseconds})
	return p.end()
}

func (p *Writer) begin(kind uint32) {
	p.block = binary.LittleEndian.AppendUint32(p.block[:0], kind)
	p.block = append(p.block, 0, 0, 0, 0) // the length, known at the end
}

func (p *Writer) option(code uint16, value []byte) {
	p.block = binary.LittleEndian.AppendUint16(p.block, code)
	p.block = binary.LittleEndian.AppendUint16(p.block, uint16(len(value)))
	p.block = append(p.block, value...)
	p.pad()
}

func (p *Writer) pad() {
	for len(p.block)%4 != 0 {
		p.block = append(p.block, 0)
	}
}

// end closes the options and writes the block at once, so that a file that is cut
// off is whole up to its last packets.
func (p *Writer) end() error {
	p.block = append(p.block, optEnd, 0, 0, 0)
	n := uint32(len(p.block) + 4)
	p.block = binary.LittleEndian.AppendUint32(p.block, n)
	binary.LittleEndian.PutUint32(p.block[4:], n)
	_, err := p.w.Write(p.block)
	return err
}
