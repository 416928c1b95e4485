// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package driver

// topic is what is logged once about. Each remembers its own last words: of two problems that
// stay, one would else make the other news, for ever.
type topic int

const (
	aboutPath       topic = iota // which way packets take
	aboutDevices                 // devices that the fast path is not in step with
	aboutForwarding              // of the instance's own device
	aboutSteering
)

// tellOnce logs why the engine is alone, when it changes.
func (f *Driver) tellOnce(why string) {
	if f.told[aboutPath] != why {
		f.told[aboutPath] = why
		f.log.Info("the engine carries all packets", "why", why)
	}
}

// warnWhile logs a problem that stays the same once, and again when it has been gone.
func (f *Driver) warnWhile(about topic, what string, err error) {
	if err == nil {
		f.forgetTold(about)
		return
	}
	if text := what + ": " + err.Error(); f.told[about] != text {
		f.told[about] = text
		f.log.Warn(text)
	}
}

// forgetTold makes anything about these news.
func (f *Driver) forgetTold(about ...topic) {
	for _, one := range about {
		delete(f.told, one)
	}
}
