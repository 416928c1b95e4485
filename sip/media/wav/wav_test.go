// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package wav

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/sip/media/g711"
)

// golden is a file of two samples of mu-law, as it lies on disk.
const golden = "52494646" + "26000000" + "57415645" +
	"666d7420" + "10000000" + "0700" + "0100" + "401f0000" + "401f0000" + "0100" + "0800" +
	"64617461" + "02000000" + "ff12"

func TestGolden(t *testing.T) {
	want, _ := hex.DecodeString(golden)
	if got := Append(nil, MuLaw, []byte{0xff, 0x12}); !bytes.Equal(got, want) {
		t.Errorf("the file is\n%x, want\n%x", got, want)
	}
	s, err := Decode(want)
	if err != nil || s.Format != MuLaw || !bytes.Equal(s.Data, []byte{0xff, 0x12}) {
		t.Errorf("read %+v, %v", s, err)
	}
}

func TestThereAndBack(t *testing.T) {
	for _, f := range []Format{Linear, ALaw, MuLaw} {
		data := []byte{1, 2, 3, 4, 5, 6}
		s, err := Decode(Append(nil, f, data))
		if err != nil || s.Format != f || !bytes.Equal(s.Data, data) || s.Len() != 6/f.size() {
			t.Errorf("%s: read %+v, %v", f, s, err)
		}
	}
}

// parts makes a file of parts.
func parts(list ...string) []byte {
	all := strings.Join(list, "")
	return append(binary.LittleEndian.AppendUint32([]byte("RIFF"), uint32(4+len(all))), "WAVE"+all...)
}

func part(name string, size uint32, content string) string {
	return name + string(binary.LittleEndian.AppendUint32(nil, size)) + content
}

func format(f, channels uint16, rate uint32, width uint16) string {
	b := binary.LittleEndian.AppendUint16(nil, f)
	b = binary.LittleEndian.AppendUint16(b, channels)
	b = binary.LittleEndian.AppendUint32(b, rate)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint16(b, 0)
	return string(binary.LittleEndian.AppendUint16(b, width))
}

func TestDecode(t *testing.T) {
	mulaw := part("fmt ", 16, format(7, 1, 8000, 8))
	tests := []struct {
		name string
		file []byte
		want string // an error, or the samples
		ok   bool
	}{
		{"empty", nil, "no WAV file", false},
		{"another kind", []byte("RIFF\x04\x00\x00\x00AVI "), "no WAV file", false},
		{"no parts", parts(), "before its samples", false},
		{"half a part's head", parts("fmt \x10"), "before its samples", false},
		{"samples without a format", parts(part("data", 2, "ab")), "does not say", false},
		{"a format cut off", parts(part("fmt ", 14, format(7, 1, 8000, 8)[:14])), "cut off", false},
		{"a format longer than the file", parts(part("fmt ", 0xfffffffe, format(7, 1, 8000, 8))), "cut off", false},
		{"samples longer than the file", parts(mulaw, part("data", 3, "ab")), "cut off", false},
		{"stereo", parts(part("fmt ", 16, format(1, 2, 8000, 16))), "2 channels", false},
		{"44.1 kHz", parts(part("fmt ", 16, format(1, 1, 44100, 16))), "44100 Hz", false},
		{"24 bits", parts(part("fmt ", 16, format(1, 1, 8000, 24))), "24 bits", false},
		{"MP3 within", parts(part("fmt ", 16, format(0x55, 1, 8000, 0))), "format 85", false},
		{"plain", parts(mulaw, part("data", 2, "ab")), "ab", true},
		{"an unknown part of odd length before", parts(mulaw, part("LIST", 3, "xyz\x00"), part("data", 2, "ab")), "ab", true},
		{"an unknown part without its padding at the end", parts(mulaw, part("LIST", 3, "xyz")), "before its samples", false},
		{"a writer that cannot go back", parts(mulaw, part("data", 0xffffffff, "abc")), "abc", true},
		{"the format in an extension", parts(part("fmt ", 40, format(0xfffe, 1, 8000, 8)+"\x16\x00\x08\x00\x00\x00\x00\x00\x07\x00"+strings.Repeat("\x00", 14)), part("data", 1, "a")), "a", true},
		{"half a sample at the end", parts(part("fmt ", 16, format(1, 1, 8000, 16)), part("data", 3, "abc")), "ab", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Decode(tt.file)
			switch {
			case tt.ok && (err != nil || string(s.Data) != tt.want):
				t.Errorf("read %+v, %v", s, err)
			case !tt.ok && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("the error is %v, want %q in it", err, tt.want)
			}
		})
	}
}

func TestFrame(t *testing.T) {
	linear := &Sound{Format: Linear, Data: binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(nil, 0), 0x7fff)}
	mulaw := &Sound{Format: MuLaw, Data: []byte{0x7f, 0x80}}
	loop := &Sound{Format: MuLaw, Data: []byte{1, 2, 3}, Loop: true}
	tests := []struct {
		name  string
		sound *Sound
		law   g711.Law
		at    int64
		want  []byte
	}{
		{"of 16 bits, silence after the end", linear, g711.PCMU, 0, []byte{0xff, 0x80, 0xff}},
		{"from its middle on", linear, g711.PCMA, 1, []byte{0xaa, 0xd5, 0xd5}},
		{"by the same law unchanged, both zeros", mulaw, g711.PCMU, 0, []byte{0x7f, 0x80, 0xff}},
		{"by the other law", mulaw, g711.PCMA, 0, []byte{0xd5, 0xaa, 0xd5}},
		{"again and again", loop, g711.PCMU, 7, []byte{2, 3, 1}},
		{"of nothing", &Sound{Format: MuLaw, Loop: true}, g711.PCMU, 0, []byte{0xff, 0xff, 0xff}},
	}
	for _, tt := range tests {
		got := make([]byte, 3)
		if tt.sound.Frame(got, tt.law, tt.at); !bytes.Equal(got, tt.want) {
			t.Errorf("%s: %x, want %x", tt.name, got, tt.want)
		}
	}
}

// disk is a file in memory, which is full at some length.
type disk struct {
	b      []byte
	room   int
	writes int
}

func (d *disk) WriteAt(p []byte, at int64) (int, error) {
	d.writes++
	if int(at)+len(p) > d.room {
		return 0, errors.New("no space left")
	}
	if n := int(at) + len(p); n > len(d.b) {
		d.b = append(d.b, make([]byte, n-len(d.b))...)
	}
	return copy(d.b[at:], p), nil
}

func TestRecorder(t *testing.T) {
	tests := []struct {
		name   string
		format Format
		write  func(r *Recorder)
		want   []byte
		full   uint64
	}{
		{"in order", MuLaw, func(r *Recorder) { r.Write(0, g711.PCMU, []byte{1, 2}); r.Write(2, g711.PCMU, []byte{3}) }, []byte{1, 2, 3}, 0},
		{"a gap is silent", MuLaw, func(r *Recorder) { r.Write(0, g711.PCMU, []byte{1}); r.Write(3, g711.PCMU, []byte{2}) }, []byte{1, 0xff, 0xff, 2}, 0},
		{"what comes late comes to its place", MuLaw, func(r *Recorder) { r.Write(2, g711.PCMU, []byte{3}); r.Write(0, g711.PCMU, []byte{1, 2}) }, []byte{1, 2, 3}, 0},
		{"of another law", ALaw, func(r *Recorder) { r.Write(0, g711.PCMU, []byte{0xff, 0x80}) }, []byte{0xd5, 0xaa}, 0},
		{"of 16 bits", Linear, func(r *Recorder) { r.Write(1, g711.PCMA, []byte{0xd5}) }, []byte{0, 0, 8, 0}, 0},
		{"before the first", MuLaw, func(r *Recorder) { r.Write(-1, g711.PCMU, []byte{1}) }, nil, 1},
		{"over the limit", MuLaw, func(r *Recorder) { r.Write(998, g711.PCMU, []byte{1, 2, 3}) }, append(bytes.Repeat([]byte{0xff}, 998), 1, 2), 1},
		{"far beyond the limit", MuLaw, func(r *Recorder) { r.Write(1<<62, g711.PCMU, []byte{1, 2, 3}) }, nil, 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := &disk{room: 1 << 20}
			r := NewRecorder(d, tt.format, 1000)
			tt.write(r)
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			s, err := Decode(d.b)
			if err != nil || !bytes.Equal(s.Data, tt.want) {
				t.Errorf("the file has %x, %v, want %x", s.Data, err, tt.want)
			}
			if r.Full() != tt.full {
				t.Errorf("%d samples had no place, want %d", r.Full(), tt.full)
			}
		})
	}
}

// TestRecorderAfterAPause fills an hour with few writes.
func TestRecorderAfterAPause(t *testing.T) {
	const hour = 3600 * g711.Rate
	for _, f := range []Format{MuLaw, Linear} {
		d := &disk{room: 1 << 26}
		d.b = make([]byte, 0, d.room)
		r := NewRecorder(d, f, 2*hour)
		r.Write(0, g711.PCMU, []byte{1})
		r.Write(hour, g711.PCMU, []byte{0x80})
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		s, err := Decode(d.b)
		if err != nil || s.Len() != hour+1 || d.writes > 2000 {
			t.Errorf("%s: %d samples by %d writes, %v", f, s.Len(), d.writes, err)
		}
		frame := make([]byte, hour)
		s.Frame(frame, g711.PCMU, 1)
		if last := frame[hour-1]; last != 0x80 || bytes.Count(frame, []byte{g711.PCMU.Silence()}) != hour-1 {
			t.Errorf("%s: the last is %d, and the silence is not", f, last)
		}
	}
}

func TestRecorderTellsOfAFullDisk(t *testing.T) {
	r := NewRecorder(&disk{room: 100}, MuLaw, 1000)
	r.Write(0, g711.PCMU, make([]byte, 200))
	r.Write(500, g711.PCMU, make([]byte, 200))
	if err := r.Close(); err == nil || err.Error() != "no space left" {
		t.Errorf("the error is %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	whole, _ := hex.DecodeString(golden)
	f.Add(whole)
	f.Add(parts(part("fmt ", 40, format(0xfffe, 1, 8000, 8))))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Decode(b)
		if err != nil {
			return
		}
		again, err := Decode(Append(nil, s.Format, s.Data))
		if err != nil || !bytes.Equal(again.Data, s.Data) || again.Format != s.Format {
			t.Errorf("what was read cannot be written: %v", err)
		}
		var frame [160]byte
		s.Frame(frame[:], g711.PCMU, int64(s.Len())-80)
	})
}
