//! Calls of [`Interface`](crate::interface::Interface) that a wrapper passes on unchanged.
//!
//! Not here: the wrappers (`capture`, `fault`, `trace`, `with_xdp`).

/// Defines the named methods of `Interface`, each of which asks the expression's method of the same
/// name: `pass_on!(self.inner: flush, wait_fd)`.
macro_rules! pass_on {
    ($this:ident.$inner:ident: $($name:ident),+) => {
        $($crate::pass_on::pass_on!(@$name $this $inner);)+
    };
    (@send $this:ident $inner:ident) => {
        #[inline]
        fn send(
            &mut $this,
            frame: &$crate::interface::Outgoing<'_>,
        ) -> Result<(), $crate::interface::SendError> {
            $this.$inner.send(frame)
        }
    };
    (@flush $this:ident $inner:ident) => {
        fn flush(&mut $this) -> Result<(), $crate::interface::SendError> {
            $this.$inner.flush()
        }
    };
    (@wait_fd $this:ident $inner:ident) => {
        fn wait_fd(&$this) -> Option<rustix::fd::BorrowedFd<'_>> {
            $this.$inner.wait_fd()
        }
    };
    (@take_error $this:ident $inner:ident) => {
        fn take_error(&mut $this) -> Option<$crate::interface::LinkError> {
            $this.$inner.take_error()
        }
    };
    (@properties $this:ident $inner:ident) => {
        fn properties(&$this) -> &$crate::interface::Properties {
            $this.$inner.properties()
        }
    };
    (@refresh $this:ident $inner:ident) => {
        fn refresh(&mut $this) -> Result<(), $crate::interface::LinkError> {
            $this.$inner.refresh()
        }
    };
    (@statistics $this:ident $inner:ident) => {
        fn statistics(&mut $this) -> $crate::interface::Statistics {
            $this.$inner.statistics()
        }
    };
}
pub(crate) use pass_on;
