// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package wav

import (
	"bytes"
	"encoding/binary"
	"io"

	"github.com/isthmus-net/isthmus/sip/media/g711"
)

// Recorder writes what a stream receives to a file, each sample at the place that its
// timestamp gives it, so that what is lost stays silent and what comes late still comes to
// its place. It is a sink of a stream.
type Recorder struct {
	w      io.WriterAt
	format Format
	limit  int64 // samples
	end    int64 // of what is written, in samples
	full   uint64
	err    error
	buffer [2 * chunk]byte
}

// chunk is how many samples are written at once: after an hour on hold the silence is no long work.
const chunk = 1 << 14

// Full is how many samples had no place: beyond the limit, or before the first.
func (r *Recorder) Full() uint64 { return r.full }

// NewRecorder makes a recorder of at most limit samples. The file is complete after
// [Recorder.Close].
func NewRecorder(w io.WriterAt, f Format, limit int64) *Recorder {
	return &Recorder{w: w, format: f, limit: min(limit, (1<<31-headerLen)/2)}
}

// Write takes octets of a law whose first is the sample at a place.
func (r *Recorder) Write(at int64, law g711.Law, octets []byte) {
	if room := r.limit - at; at < 0 || room < int64(len(octets)) {
		if at < 0 || room <= 0 {
			r.full += uint64(len(octets))
			return
		}
		r.full += uint64(int64(len(octets)) - room)
		octets = octets[:room]
	}
	r.silence(at)
	for len(octets) > 0 {
		n := min(len(octets), chunk)
		r.write(at, r.encode(law, octets[:n]))
		octets, at = octets[n:], at+int64(n)
	}
}

// quiet is a chunk of silence.
var quiet = bytes.Repeat([]byte{g711.PCMU.Silence()}, chunk)

// silence fills what lies between the end and a place.
func (r *Recorder) silence(until int64) {
	if r.end >= until {
		return
	}
	b := r.encode(g711.PCMU, quiet[:min(until-r.end, chunk)])
	for r.end < until && r.err == nil {
		r.write(r.end, b[:min(until-r.end, chunk)*int64(r.format.size())])
	}
}

// encode puts at most a chunk of samples into the buffer, as the file has them.
func (r *Recorder) encode(law g711.Law, octets []byte) []byte {
	b := r.buffer[:0]
	own, companded := r.format.law()
	for _, o := range octets {
		if companded {
			b = append(b, law.Translate(o, own))
		} else {
			b = binary.LittleEndian.AppendUint16(b, uint16(law.Decode(o)))
		}
	}
	return b
}

// write writes samples to their place.
func (r *Recorder) write(at int64, b []byte) {
	if r.err != nil {
		return
	}
	size := int64(r.format.size())
	_, r.err = r.w.WriteAt(b, headerLen+at*size)
	r.end = max(r.end, at+int64(len(b))/size)
}

// Close writes the head of the file, and returns what first went wrong. It does not close
// the file itself.
func (r *Recorder) Close() error {
	if r.err != nil {
		return r.err
	}
	octets := int(r.end) * r.format.size()
	if octets%2 != 0 {
		if _, err := r.w.WriteAt([]byte{0}, headerLen+int64(octets)); err != nil {
			return err
		}
	}
	_, err := r.w.WriteAt(appendHeader(nil, r.format, octets), 0)
	return err
}
