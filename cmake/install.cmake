# cmake --install: headers, both libraries, the command, a CMake package and a pkg-config file. The
# installed tree may be moved: it does not contain the prefix.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(FILES include/flashcore/flashcore.hpp include/flashcore/quantize.hpp
              include/flashcore/serving.hpp include/flashcore/context_parallel.hpp
              include/flashcore/flashcore.h
        COMPONENT development DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/flashcore)
install(TARGETS flashcore flashcore_shared EXPORT flashcore_targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT licence)

set(flashcore_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/flashcore)
install(EXPORT flashcore_targets NAMESPACE flashcore:: DESTINATION ${flashcore_package_dir} COMPONENT development)
configure_package_config_file(cmake/package/flashcore-config.cmake.in
  ${PROJECT_BINARY_DIR}/package/flashcore-config.cmake
  INSTALL_DESTINATION ${flashcore_package_dir}
  NO_SET_AND_CHECK_MACRO)
set(compatibility SameMajorVersion)
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(compatibility SameMinorVersion)
endif()
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/flashcore-config-version.cmake
  COMPATIBILITY ${compatibility})
install(FILES ${PROJECT_BINARY_DIR}/package/flashcore-config.cmake
              ${PROJECT_BINARY_DIR}/package/flashcore-config-version.cmake
        COMPONENT development DESTINATION ${flashcore_package_dir})

# The pkg-config file derives the prefix from its own location.
set(FLASHCORE_PC_PRIVATE_LIBS "-lstdc++ -lm -pthread")
if(FLASHCORE_HAS_CUDA)
  get_filename_component(cudart_dir ${CUDA_cudart_static_LIBRARY} DIRECTORY)
  string(APPEND FLASHCORE_PC_PRIVATE_LIBS " -L${cudart_dir} -lcudart_static -ldl -lrt")
endif()
file(RELATIVE_PATH FLASHCORE_PC_UP
  /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" FLASHCORE_PC_UP "${FLASHCORE_PC_UP}")
configure_file(cmake/package/flashcore.pc.in ${PROJECT_BINARY_DIR}/package/flashcore.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/package/flashcore.pc
        COMPONENT development DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(FLASHCORE_WHEEL)
  include(cmake/wheel.cmake)
endif()
