package owner

// For the tests that compare the mirror with the header.
var GoLayout = goLayout

// LayoutVersion is layoutVersion.
const LayoutVersion = layoutVersion

// PendingHeld is pendingHeld.
const PendingHeld = pendingHeld

// Push puts a dead cell on its home list, as C does.
var Push = push
