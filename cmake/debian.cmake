# cpack -G DEB: packages for Debian, of a build with -DCMAKE_INSTALL_PREFIX=/usr. scripts/check_deb.sh makes and tests them.
set(library_package libflashcore${FLASHCORE_SOVERSION})
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "The FlashCore authors <authors@flashcore.invalid>" CACHE STRING
  "Who is written to about the packages")
set(CPACK_PACKAGE_CONTACT "${CPACK_DEBIAN_PACKAGE_MAINTAINER}")
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL library development tools)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)

set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME ${library_package})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libflashcore-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${library_package} (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME flashcore-tools)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION science)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SHLIBDEPS ON)
foreach(about
    "LIBRARY|shared library|the library that programs load"
    "DEVELOPMENT|headers|the headers, the static library and files for CMake"
    "TOOLS|command|the command flashcore, which runs, checks and times kernels")
  string(REPLACE "|" ";" about "${about}")
  list(POP_FRONT about part summary contents)
  set(CPACK_COMPONENT_${part}_DESCRIPTION "fused attention on CPUs and GPUs - ${summary}
FlashCore computes attention and its gradients with fused kernels that never
store the matrix of scores, on CPUs and on NVIDIA GPUs.
.
This package has ${contents}.")
endforeach()

# What Debian's policy wants of each package.
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
set(documents ${PROJECT_BINARY_DIR}/debian)
file(CONFIGURE OUTPUT ${documents}/changelog @ONLY CONTENT "flashcore (@PROJECT_VERSION@) unstable; urgency=medium

  * CHANGELOG.md of the source says what has changed.

 -- @CPACK_DEBIAN_PACKAGE_MAINTAINER@  @date@
")
file(READ LICENSE licence)
string(REGEX REPLACE "^MIT License\n\nCopyright[^\n]*\n\n" "" licence "${licence}")
string(REGEX REPLACE "\n\n" "\n.\n" licence "${licence}")
string(REGEX REPLACE "\n(.)" "\n \\1" licence " ${licence}")
file(WRITE ${documents}/copyright "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: FlashCore

Files: *
Copyright: 2026 The FlashCore authors
License: Expat

License: Expat
${licence}")
execute_process(COMMAND gzip -9nkf ${documents}/changelog)
foreach(part LIBRARY DEVELOPMENT TOOLS)
  string(TOLOWER ${part} component)
  install(FILES ${documents}/changelog.gz ${documents}/copyright COMPONENT ${component} EXCLUDE_FROM_ALL
          DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/${CPACK_DEBIAN_${part}_PACKAGE_NAME})
endforeach()
include(CPack)
