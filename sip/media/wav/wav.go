// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package wav reads and writes WAV files as telephones use them: one channel, 8,000 samples
// a second, of 16 bits or G.711.
//
//house:codec
package wav

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/isthmus-net/isthmus/sip/media/g711"
)

// Format is how samples lie in a file.
type Format uint16

// Formats, by their numbers in files.
const (
	Linear Format = 1 // 16 bits, little-endian
	ALaw   Format = 6
	MuLaw  Format = 7
)

// String returns the format in words.
func (f Format) String() string {
	switch f {
	case Linear:
		return "16 bits"
	case ALaw:
		return "A-law"
	case MuLaw:
		return "mu-law"
	}
	return fmt.Sprintf("format %d", uint16(f))
}

// size is the number of octets of a sample.
func (f Format) size() int {
	if f == Linear {
		return 2
	}
	return 1
}

// law is the law of G.711 whose octets are in the file, if any.
func (f Format) law() (g711.Law, bool) {
	switch f {
	case ALaw:
		return g711.PCMA, true
	case MuLaw:
		return g711.PCMU, true
	}
	return 0, false
}

// Sound is what is in a file. It is a source of a stream: see [Sound.Frame].
type Sound struct {
	Format Format
	// Data are the samples as they lie in the file.
	Data []byte
	// Loop has the sound begin anew at its end; else silence follows.
	Loop bool
}

// Len is the number of samples.
func (s *Sound) Len() int { return len(s.Data) / s.Format.size() }

// Sample returns the sample at a place.
func (s *Sound) Sample(i int) int16 {
	if law, ok := s.Format.law(); ok {
		return law.Decode(s.Data[i])
	}
	return int16(binary.LittleEndian.Uint16(s.Data[2*i:]))
}

// Frame fills b with the octets of the samples from a place on. What is in the file by the
// same law stays as it is.
func (s *Sound) Frame(b []byte, law g711.Law, at int64) {
	own, same := s.Format.law()
	same = same && own == law
	n := int64(s.Len())
	for i := range b {
		place := at + int64(i)
		if s.Loop && n > 0 {
			place %= n
		}
		switch {
		case place < 0 || place >= n:
			b[i] = law.Silence()
		case same:
			b[i] = s.Data[place]
		default:
			b[i] = law.Encode(s.Sample(int(place)))
		}
	}
}

// Of a file.
const (
	chunkHeader = 8
	plainFormat = 16         // octets of a format chunk
	extended    = 0xfffe     // the format is in an extension
	unknownSize = 0xffffffff // by writers that cannot go back
	headerLen   = 12 + chunkHeader + plainFormat + chunkHeader
)

// ErrNotWAV says that a file is of another kind.
var ErrNotWAV = errors.New("this is no WAV file")

// Decode reads a file. The sound lies over b.
func Decode(b []byte) (*Sound, error) {
	if len(b) < 12 || string(b[:4]) != "RIFF" || string(b[8:12]) != "WAVE" {
		return nil, ErrNotWAV
	}
	var s Sound
	for rest := b[12:]; ; {
		if len(rest) < chunkHeader {
			return nil, errors.New("the WAV file ends before its samples begin")
		}
		name, size := string(rest[:4]), int64(binary.LittleEndian.Uint32(rest[4:]))
		rest = rest[chunkHeader:]
		if name == "data" && size == unknownSize {
			size = int64(len(rest))
		}
		if size > int64(len(rest)) {
			return nil, fmt.Errorf("the WAV file is cut off: its part %q says %d octets, and %d are left", name, size, len(rest))
		}
		switch name {
		case "fmt ":
			if err := s.readFormat(rest[:size]); err != nil {
				return nil, err
			}
		case "data":
			return s.readData(rest[:size])
		}
		rest = rest[min(size+size&1, int64(len(rest))):] // parts begin at even places
	}
}

// readFormat takes the format chunk.
func (s *Sound) readFormat(b []byte) error {
	if len(b) < plainFormat {
		return errors.New("the format of the WAV file is cut off")
	}
	s.Format = Format(binary.LittleEndian.Uint16(b))
	if s.Format == extended && len(b) >= 26 {
		s.Format = Format(binary.LittleEndian.Uint16(b[24:]))
	}
	channels, rate, width := binary.LittleEndian.Uint16(b[2:]), binary.LittleEndian.Uint32(b[4:]), int(binary.LittleEndian.Uint16(b[14:]))
	_, companded := s.Format.law()
	if s.Format != Linear && !companded || width != 8*s.Format.size() || channels != 1 || rate != g711.Rate {
		return fmt.Errorf("the WAV file has %d channels of %d Hz, %s, %d bits a sample; it must have one of 8000 Hz, in 16 bits or G.711: `sox IN -r 8000 -c 1 -b 16 OUT` makes such", channels, rate, s.Format, width)
	}
	return nil
}

// readData takes the samples.
func (s *Sound) readData(b []byte) (*Sound, error) {
	if s.Format == 0 {
		return nil, errors.New("the WAV file does not say how its samples are written")
	}
	s.Data = b[:len(b)/s.Format.size()*s.Format.size()]
	return s, nil
}

// Append appends a file with samples, as they lie in it, to b.
func Append(b []byte, f Format, data []byte) []byte {
	b = append(appendHeader(b, f, len(data)), data...)
	if len(data)%2 != 0 {
		b = append(b, 0)
	}
	return b
}

// appendHeader appends what stands before the samples.
func appendHeader(b []byte, f Format, octets int) []byte {
	b = append(b, "RIFF"...)
	b = binary.LittleEndian.AppendUint32(b, uint32(headerLen-chunkHeader+octets+octets%2))
	b = append(b, "WAVEfmt "...)
	b = binary.LittleEndian.AppendUint32(b, plainFormat)
	b = binary.LittleEndian.AppendUint16(b, uint16(f))
	b = binary.LittleEndian.AppendUint16(b, 1)
	b = binary.LittleEndian.AppendUint32(b, g711.Rate)
	b = binary.LittleEndian.AppendUint32(b, uint32(g711.Rate*f.size()))
	b = binary.LittleEndian.AppendUint16(b, uint16(f.size()))
	b = binary.LittleEndian.AppendUint16(b, uint16(8*f.size()))
	b = append(b, "data"...)
	return binary.LittleEndian.AppendUint32(b, uint32(octets))
}
