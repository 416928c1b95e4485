// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/isthmus-net/isthmus/sip/media"
	"github.com/isthmus-net/isthmus/sip/media/g711"
	"github.com/isthmus-net/isthmus/sip/media/wav"
)

// Of the sound.
const (
	callTone    = media.Tone(440) // what the terminal says
	callLongest = 600 * g711.Rate // samples that the file has room for
)

// tone is what the terminal sends; it keeps nothing of what it hears.
func (g *callGuide) tone() (media.Source, media.Sink) { return callTone, nil }

// hearing is a file of what a telephone hears, call behind call.
type hearing struct {
	file     *os.File
	recorder *wav.Recorder
	end      int64 // of the calls so far, in samples
	closed   bool
}

// newHearing makes the file: call.wav in a folder, or one of a name of its own among temporary files.
func newHearing(dir string) (h *hearing, err error) {
	h = &hearing{}
	if dir != "" {
		h.file, err = os.Create(filepath.Join(dir, callTourName+".wav"))
	} else if h.file, err = os.CreateTemp("", "isthmus-call-*.wav"); err == nil {
		err = h.file.Chmod(0o644) // for who has called sudo
	}
	if err != nil {
		return nil, err
	}
	h.recorder = wav.NewRecorder(h.file, wav.Linear, callLongest)
	return h, nil
}

// sound is what the host sends in the next call, and what takes what it hears.
func (h *hearing) sound() (media.Source, media.Sink) {
	return media.Numbered{}, callHeard{h, h.end}
}

// callHeard is one call in the file.
type callHeard struct {
	*hearing
	begin int64
}

// Write takes samples at a place of the call.
func (c callHeard) Write(at int64, law g711.Law, octets []byte) {
	if at < 0 {
		return // what was sent before the first that came has no place
	}
	c.recorder.Write(c.begin+at, law, octets)
	c.end = max(c.end, c.begin+at+int64(len(octets)))
}

// close completes the file.
func (h *hearing) close() error {
	if h.closed {
		return nil
	}
	h.closed = true
	return errors.Join(h.recorder.Close(), h.file.Close())
}

// remove removes it.
func (h *hearing) remove() error {
	return errors.Join(h.close(), os.Remove(h.file.Name()))
}

// read reads what is in it.
func (h *hearing) read() (*wav.Sound, error) {
	b, err := os.ReadFile(h.file.Name())
	if err != nil {
		return nil, err
	}
	return wav.Decode(b)
}

// longestSilence finds the longest time without a sound, of a packet at least.
func longestSilence(s *wav.Sound) (begin, length time.Duration) {
	first, most, since := 0, 0, 0
	for i := range s.Len() {
		if s.Sample(i) != 0 {
			since = i + 1
		} else if n := i + 1 - since; n >= media.Samples && n > most {
			first, most = since, n
		}
	}
	return places(first), places(most)
}

// places is how long so many samples last.
func places(n int) time.Duration { return time.Duration(n) * time.Second / g711.Rate }
